//! The rules for `[upstream.NAME]`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use super::layers::Layers;
use super::refusal::{Fault, SettingsError};
use super::value::Found;
use super::{Kind, Settings, UpstreamSettings, Warning, schema, secret_file};

const MOST_AT_ONCE: u64 = 1024;
const URL: &str = "an http or https address such as \"http://127.0.0.1:11434\", without user name, password, query or \
                   route";

/// Reads every model server, in the order of their names.
pub(super) fn read_all(layers: &Layers, warnings: &mut Vec<Warning>) -> Result<Vec<UpstreamSettings>, SettingsError> {
    let names = layers.names(&["upstream"]);
    names.iter().map(|name| read(layers, name, warnings)).collect()
}

/// Refuses an address at which Weir itself will listen: each turn would go round in a circle.
pub(super) fn refuse_weir_itself(layers: &Layers, settings: &Settings) -> Result<(), SettingsError> {
    for upstream in &settings.upstreams {
        let here = match upstream.url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback() || address.is_unspecified(),
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv6(_)) | None => false,
        };
        if here && upstream.url.port_or_known_default() == Some(settings.port) {
            return Err(layers.require(&["upstream", &upstream.name, "url"])?.refuse(
                format!("port {}, which is Weir's own port", settings.port),
                "the address of a model server",
                "Name the port that the model server listens on, or give Weir another one with port.",
            ));
        }
    }
    Ok(())
}

fn read(layers: &Layers, name: &str, warnings: &mut Vec<Warning>) -> Result<UpstreamSettings, SettingsError> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    if name.is_empty() || !name.bytes().all(good) {
        return Err(Fault {
            place: layers.place(&["upstream", name]),
            key: schema::written(&["upstream", name]),
            found: "a name that Weir can't use".to_owned(),
            accepted: "a name of a to z, 0 to 9, _ and -".to_owned(),
            mend: "Choose a name such as [upstream.local].".to_owned(),
        }
        .into());
    }
    let path = |key| ["upstream", name, key];
    let found_url = layers.get(&path("url")).ok_or_else(|| -> SettingsError {
        Fault {
            place: layers.place(&["upstream", name]),
            key: schema::written(&path("url")),
            found: "no address".to_owned(),
            accepted: URL.to_owned(),
            mend: format!("Write url = \"http://…\" below [upstream.{name}]."),
        }
        .into()
    })?;
    let url = read_address(&found_url)?;
    let kind = layers.require(&path("kind"))?.word(&[
        ("auto", Kind::Auto),
        ("ollama", Kind::Ollama),
        ("llamacpp", Kind::LlamaCpp),
        ("vllm", Kind::Vllm),
        ("openai", Kind::OpenAi),
    ])?;
    let certificate_authorities = layers.get(&path("ca_file")).map(|found| certificates(&found, &url)).transpose()?;
    Ok(UpstreamSettings {
        name: name.to_owned(),
        url,
        kind,
        api_key: layers.get(&path("api_key_file")).map(|found| api_key(&found, warnings)).transpose()?,
        certificate_authorities,
        concurrency: concurrency(&layers.require(&path("concurrency"))?)?,
        context: layers
            .get(&path("context"))
            .map(|found| found.number(1..=u64::from(u32::MAX)))
            .transpose()?
            .and_then(|context| u32::try_from(context).ok()),
        keep_alive: layers.get(&path("keep_alive")).map(|found| keep_alive(&found)).transpose()?,
    })
}

fn concurrency(found: &Found) -> Result<Option<NonZeroU32>, SettingsError> {
    if found.value.as_str() == Some("auto") {
        return Ok(None);
    }
    match found.number(1..=MOST_AT_ONCE) {
        Ok(number) => Ok(u32::try_from(number).ok().and_then(NonZeroU32::new)),
        Err(_) => Err(found.refuse(
            found.shown(),
            format!("\"auto\", or a whole number from 1 to {MOST_AT_ONCE}"),
            "Write concurrency = \"auto\", or how many turns the server runs at once.",
        )),
    }
}

/// Ollama refuses what Go can't read as a duration, with every turn; better to say so at the start.
fn keep_alive(found: &Found) -> Result<String, SettingsError> {
    let accepted = "Ollama's words for a time in quotes: \"30m\", \"1h30m\", \"-1\" (for ever) or \"0\" (not at all)";
    let text = found.text(accepted)?;
    let unsigned = text.strip_prefix('-').unwrap_or(&text);
    if unsigned.parse::<u32>().is_ok() || is_duration(unsigned) {
        Ok(text)
    } else {
        Err(found.refuse(found.shown(), accepted, "Write a number and a unit (s, m, h), or a bare number of seconds."))
    }
}

fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (digits, after) = rest.split_at(number);
        let unit = after.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let known = matches!(unit, "ns" | "us" | "µs" | "ms" | "s" | "m" | "h");
        if digits.parse::<f64>().is_err() || !known {
            return false;
        }
        rest = after;
    }
    !text.is_empty()
}

/// Reads an address of a model server that stands in no file, such as one on the command line.
///
/// # Errors
/// [`SettingsError::Refused`] for what `upstream.NAME.url` would be refused for.
pub fn address(text: &str) -> Result<Url, SettingsError> {
    read_address(&Found {
        value: text.into(),
        key: "url".to_owned(),
        place: "the address of the model server".to_owned(),
        folder: PathBuf::new(),
        is_default: false,
        variable: None,
    })
}

/// The base to which `/v1/…` is appended.
fn read_address(found: &Found) -> Result<Url, SettingsError> {
    let text = found.value.as_str().unwrap_or("");
    let holds_more = text.contains(['@', '?', '#']);
    // A password or a key in the address must not be shown, also when the rest can't be read.
    let shown = if holds_more {
        "an address that isn't shown here, since it may hold a password or a key".to_owned()
    } else {
        found.shown()
    };
    let refuse = |what: &str, mend: &str| {
        let what = if what.is_empty() { shown.clone() } else { format!("{shown}, {what}") };
        found.refuse(what, URL, mend)
    };
    let mut url = Url::parse(text).map_err(|_| refuse("", "Write the whole address, from http:// on."))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse("which is neither http nor https", "Write the whole address, from http:// on."));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse(
            "with a user name or a password in it",
            "Remove it; a key for the server goes into a file that api_key_file names.",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refuse(
            "with a query or a fragment",
            "Remove everything from ? or # on; a key goes into a file that api_key_file names.",
        ));
    }
    let path = url.path().trim_end_matches('/');
    let (base, is_versioned) = match path.strip_suffix("/v1") {
        Some(base) => (base.trim_end_matches('/').to_owned(), true),
        None => (path.to_owned(), false),
    };
    if is_route(&base, is_versioned) {
        return Err(refuse(
            "with the path of one route",
            "Write the address up to the server's own name, or up to /v1; Weir adds the routes itself.",
        ));
    }
    url.set_path(&base);
    Ok(url)
}

/// Whether this path leads to one call of a model server's API rather than to the server. `/api/v1` is the base of some
/// servers, so `/api` alone is a route only where no `/v1` stood behind it.
fn is_route(base: &str, is_versioned: bool) -> bool {
    let parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [] => false,
        [.., "api"] => !is_versioned,
        [.., "api", call] => {
            matches!(*call, "chat" | "generate" | "tags" | "show" | "ps" | "version" | "embed" | "embeddings")
        }
        [.., last] => {
            parts.contains(&"v1")
                || matches!(
                    *last,
                    "completions" | "models" | "responses" | "embeddings" | "tokenize" | "props" | "slots"
                )
        }
    }
}

fn api_key(found: &Found, warnings: &mut Vec<Warning>) -> Result<SecretString, SettingsError> {
    let accepted = "one line: the key, in printable ASCII";
    let path = found.file()?;
    let bytes = secret_file::read(found, &path, accepted, "")?;
    let key = bytes.expose_secret().trim_ascii();
    let fault = if key.is_empty() {
        "no key"
    } else if key.contains(&b'\n') {
        "more than one line"
    } else if !key.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        "a character that HTTP can't carry in a key"
    } else {
        ""
    };
    match (fault, std::str::from_utf8(key)) {
        ("", Ok(key)) => {
            warnings.extend(secret_file::warning(found, &path));
            Ok(SecretString::from(key))
        }
        _ => Err(found.refuse(
            format!("{fault} in {}", secret_file::shown(found, &path)),
            accepted,
            "Write the key into it and nothing else.",
        )),
    }
}

fn certificates(found: &Found, url: &Url) -> Result<Vec<u8>, SettingsError> {
    let accepted = "one or more certificates in PEM";
    let path = found.file()?;
    let shown = secret_file::shown(found, &path);
    if url.scheme() != "https" {
        return Err(found.refuse(
            format!("{shown} beside an http address"),
            "ca_file only with an https address",
            "Remove ca_file, or write https:// in url.",
        ));
    }
    let bytes = secret_file::read(found, &path, accepted, "")?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bytes.expose_secret()) {
        if certificate.is_err() || certificate.is_ok_and(|one| roots.add(one).is_err()) {
            return Err(found.refuse(
                format!("a certificate that can't be read in {shown}"),
                accepted,
                "Export the certificate authority again, as PEM.",
            ));
        }
    }
    if roots.is_empty() {
        return Err(found.refuse(
            format!("no certificate in {shown}"),
            accepted,
            "Export the certificate authority as PEM (it begins with -----BEGIN CERTIFICATE-----).",
        ));
    }
    Ok(bytes.expose_secret().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_server_is_told_from_a_path_of_a_route() {
        for base in ["", "/ollama", "/llm/one", "/apis", "/models/one"] {
            assert!(!is_route(base, false), "{base}");
        }
        assert!(!is_route("/api", true));
        for route in [
            "/api",
            "/api/chat",
            "/v1/chat/completions",
            "/v1/models",
            "/models",
            "/x/v1/completions",
            "/ollama/api/tags",
        ] {
            assert!(is_route(route, false), "{route}");
        }
    }

    #[test]
    fn durations_in_ollamas_words_are_known() {
        for good in ["5m", "1h30m", "1.5h", "300ms"] {
            assert!(is_duration(good), "{good}");
        }
        for bad in ["", "m", "5", "5 m", "5d", "1h30"] {
            assert!(!is_duration(bad), "{bad}");
        }
    }
}
