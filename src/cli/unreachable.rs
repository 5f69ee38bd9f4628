//! Why a model server tells nothing, as a fault of the configuration: where its key stands, and what mends it.

use std::path::Path;

use url::{Host, Url};

use crate::settings::{Fault, Places, UpstreamSettings};
use crate::upstream::broken::{Broken, Obstacle};
use crate::upstream::dialect::DiscoveryError;

/// What of the machine and the environment decides whether a server is reached.
#[derive(Debug, Clone, Default)]
pub(super) struct Surroundings {
    /// The variables that name a proxy, by their names: a value may hold a password.
    pub(super) proxies: Vec<&'static str>,
    /// Whether the variables that name exceptions except this machine.
    pub(super) is_excepted: bool,
    /// Whether this is a container.
    pub(super) in_container: bool,
}

impl Surroundings {
    /// Those of this process.
    pub(super) fn here() -> Self {
        let value = |name: &str| std::env::var_os(name).unwrap_or_default().to_string_lossy().into_owned();
        let proxies = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
        let excepts = |name: &str| value(name).split(',').any(|host| matches!(host.trim(), "127.0.0.1" | "*"));
        let is_marked = ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists());
        Self {
            proxies: proxies.into_iter().filter(|name| !value(name).is_empty()).collect(),
            is_excepted: excepts("NO_PROXY") || excepts("no_proxy"),
            // Docker leaves a mark; Podman, LXC and systemd-nspawn set a variable as well.
            in_container: is_marked || !value("container").is_empty(),
        }
    }
}

/// Whether this is an address of the machine itself.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// What is said of a model server whose models are not known.
pub(super) fn fault_of(
    settings: &UpstreamSettings,
    error: &DiscoveryError,
    places: &Places,
    here: &Surroundings,
) -> Fault {
    let said = error.to_string();
    // What was seen stands before what mends it; only of one that loads nothing has to be mended.
    let (seen, mend) = said.split_once("; ").unwrap_or((
        &said,
        match error {
            DiscoveryError::Loading => "wait until it has loaded",
            _ => "look at what listens there",
        },
    ));
    let url = settings.url.as_str().trim_end_matches('/');
    let fault = |key: &str, found: String, accepted: &str, mend: String| {
        places.fault(&["upstream", &settings.name, key], found, accepted.to_owned(), mend)
    };
    let is_refused_a_connection =
        matches!(error, DiscoveryError::Broken(Broken::NotConnected(obstacle)) if !obstacle.is_lasting());
    if is_refused_a_connection && !is_loopback(&settings.url) && !here.proxies.is_empty() {
        return Fault {
            place: "environment".to_owned(),
            key: here.proxies.join(", "),
            found: format!("a proxy, which Weir doesn't use, and no connection to {url} without it"),
            accepted: format!("an address in upstream.{}.url that is reached without a proxy", settings.name),
            mend: "Name such an address, or give this machine a way to that one; the proxy may stay set.".to_owned(),
        };
    }
    let (key, accepted) = match error {
        DiscoveryError::Broken(Broken::NotConnected(Obstacle::Untrusted | Obstacle::NoServersCertificate)) => {
            let named = places.names(&["upstream", &settings.name, "ca_file"]);
            (if named { "ca_file" } else { "url" }, "a certificate that is a server's, of an authority that is trusted")
        }
        DiscoveryError::Broken(Broken::NotConnected(Obstacle::OtherHost | Obstacle::OutOfDate)) => {
            ("url", "a server whose certificate is for this address and this time")
        }
        DiscoveryError::Credentials(_) => ("api_key_file", "a file with a key that the server takes"),
        DiscoveryError::Loading => ("url", "a server that has loaded its model"),
        _ => ("url", "the address of a running model server"),
    };
    let mut letters = mend.chars();
    let mut mend: String =
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).chain(['.']).collect();
    if is_refused_a_connection && here.in_container && is_loopback(&settings.url) {
        mend.push_str(
            " This is a container: unless it is on the host's network (network_mode: host), that address is the container itself.",
        );
    }
    fault(key, format!("{url}, and {seen}"), accepted, mend)
}
