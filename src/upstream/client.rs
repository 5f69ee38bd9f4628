//! The HTTP client toward one model server.
//!
//! It uses no proxy, follows no redirect, passes no header of the phone's on and sets its own `Host`: Ollama answers 403 with
//! an empty body to a foreign `Host` or `Origin`, and llama.cpp keeps generating after a hang-up if it sees a session header.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use reqwest::redirect::Policy;
use rustls::CertificateError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::ExposeSecret as _;
use url::Url;

use super::body::SlicedBody;
use crate::buffer::append;
use crate::settings::UpstreamSettings;

/// How long an idle connection is kept for the next question of discovery. uvicorn (vLLM, SGLang), cpp-httplib (llama.cpp) and
/// LM Studio hang up after 5 s.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);

/// The largest answer to a discovery call that is read, in bytes.
const DISCOVERY_CAP: usize = 8 * 1024 * 1024;

/// How long a discovery call may take: it loads nothing, so a server that is well answers at once. It is more than
/// `timeouts.connect` is by itself, so that a host that does not answer is always told from a server that says nothing.
const DISCOVERY_TIME: Duration = Duration::from_secs(6);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// No connection came about, so nothing was sent.
    #[error("{0}")]
    NotConnected(Obstacle),
    /// The connection was lost, or what came over it is not HTTP.
    #[error("the connection was lost before the answer was whole")]
    Lost,
    /// The server said nothing for too long.
    #[error("no answer in time")]
    Silent,
    /// The answer is larger than Weir lets through.
    #[error("the answer is too large")]
    TooLarge,
    /// The answer is none that a model server gives.
    #[error("the answer is not one that a model server gives")]
    NotUnderstood,
}

/// Why no connection came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// Nothing listens at the address.
    #[error("nothing listens there; start the server, or correct the port in its url")]
    NobodyListens,
    /// Nobody who is trusted vouches for its certificate.
    #[error(
        "its certificate is of no authority that is trusted here; put the certificate of its authority (PEM) into a file and name \
         that in ca_file"
    )]
    Untrusted,
    /// The certificate is for other hosts.
    #[error(
        "its certificate is for another host; write url with a name that stands in the certificate, or have this one added to it \
         (ca_file cannot mend that)"
    )]
    OtherHost,
    /// The certificate was valid, or will be.
    #[error("its certificate is not valid at this time; renew it, or set the clock of this machine")]
    OutOfDate,
    /// The certificate cannot be a server's.
    #[error(
        "its certificate cannot be used by a server; have one issued by the authority in ca_file (one that signs itself needs \
         basicConstraints CA:FALSE)"
    )]
    NoServersCertificate,
    /// What answers does not speak TLS.
    #[error("what listens there does not speak TLS; write http:// in its url, or correct the port")]
    NoTls,
    /// The host has no address, or does not answer.
    #[error("no connection came about; correct the host in its url, or let this machine reach it")]
    Other,
}

impl Obstacle {
    /// Whether it stays until a person does something, so that trying again is of no use.
    pub fn is_lasting(self) -> bool {
        !matches!(self, Obstacle::NobodyListens | Obstacle::Other)
    }
}

/// The client could not be made from the settings; the sentence names the key.
#[derive(Debug, thiserror::Error)]
#[error("upstream.{name}: {reason}")]
pub struct ClientError {
    name: String,
    reason: &'static str,
}

/// The whole answer to a call that is no turn.
#[derive(Debug)]
pub struct Fetched {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// A client bound to one base URL.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.base)
    }
}

impl Client {
    /// Makes the client; opens no connection.
    ///
    /// # Errors
    /// `ca_file` holds no usable certificate, the key holds a byte that no header can carry, or TLS is not to be had.
    pub fn new(settings: &UpstreamSettings, connect: Duration) -> Result<Self, ClientError> {
        let refused = |reason| ClientError { name: settings.name.clone(), reason };
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(key) = &settings.api_key {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret()))
                .map_err(|_| refused("api_key_file: the key holds a character that an HTTP header cannot carry"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .referer(false)
            .http1_only()
            .tcp_nodelay(true)
            .connect_timeout(connect)
            .pool_idle_timeout(IDLE_CONNECTION)
            .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers);
        // The system's certificates are only read where they are needed: a plain http upstream works on a system without any.
        let authorities = settings.certificate_authorities.as_deref();
        if authorities.is_some() || settings.url.scheme() == "http" {
            let tls = trust_only(authorities.unwrap_or_default())
                .ok_or_else(|| refused("ca_file: it holds no certificate that can be used as an authority"))?;
            builder = builder.tls_backend_preconfigured(tls);
        }
        let http =
            builder.build().map_err(|_| refused("the system's TLS certificates could not be read; set ca_file"))?;
        Ok(Client { http, base: settings.url.clone() })
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        let prefix = url.path().trim_end_matches('/').to_owned();
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        url.set_path(&format!("{prefix}{path}"));
        url.set_query(query);
        url
    }

    /// Asks a question whose answer is small and comes at once.
    ///
    /// # Errors
    /// There is no whole answer, whatever its status, within 6 s and 8 MiB.
    pub async fn get(&self, path: &str) -> Result<Fetched, Broken> {
        self.fetch(self.http.get(self.url(path)), DISCOVERY_TIME).await
    }

    /// Like [`Client::get`], for the discovery calls that are a `POST` of a small JSON document.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub async fn ask(&self, path: &str, question: &serde_json::Value) -> Result<Fetched, Broken> {
        self.ask_within(path, question, DISCOVERY_TIME).await
    }

    /// Like [`Client::ask`], for a question whose answer may take longer.
    ///
    /// # Errors
    /// There is no whole answer, whatever its status, within `time` and 8 MiB.
    pub async fn ask_within(
        &self,
        path: &str,
        question: &serde_json::Value,
        time: Duration,
    ) -> Result<Fetched, Broken> {
        let mut body = SlicedBody::default();
        body.json(question);
        self.fetch(self.post_request(path, body), time).await
    }

    /// Like [`Client::ask`], for a question that is a whole conversation.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub async fn send(&self, path: &str, body: SlicedBody) -> Result<Fetched, Broken> {
        self.fetch(self.post_request(path, body), DISCOVERY_TIME).await
    }

    fn post_request(&self, path: &str, body: SlicedBody) -> reqwest::RequestBuilder {
        let body = reqwest::Body::wrap(body.finish());
        self.http.request(Method::POST, self.url(path)).headers(json()).body(body)
    }

    async fn fetch(&self, request: reqwest::RequestBuilder, time: Duration) -> Result<Fetched, Broken> {
        let whole = async {
            let mut response = request.send().await.map_err(|error| broken(&error))?;
            let body = read_capped(&mut response, DISCOVERY_CAP).await?;
            Ok(Fetched { status: response.status(), headers: response.headers().clone(), body })
        };
        tokio::time::timeout(time, whole).await.unwrap_or(Err(Broken::Silent))
    }

    /// Sends a turn, on a connection of its own. The answer's body is read by the caller; dropping it, or this future, closes the
    /// connection.
    ///
    /// A kept connection may be one that the server is just closing: llama-server does so behind every streamed answer without
    /// announcing it (build 11434). The turn would be lost in it, and could not be sent again, since nobody can tell whether it
    /// was begun. A fresh connection costs far less than that.
    ///
    /// # Errors
    /// No connection, or no head of an answer. There is no clock here: the turn has the only one.
    pub async fn post(&self, path: &str, body: SlicedBody) -> Result<reqwest::Response, Broken> {
        let request = self.post_request(path, body).header(CONNECTION, HeaderValue::from_static("close"));
        request.send().await.map_err(|error| broken(&error))
    }
}

fn json() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

/// Reads a body of at most `cap` bytes.
async fn read_capped(response: &mut reqwest::Response, cap: usize) -> Result<Bytes, Broken> {
    let mut body = BytesMut::new();
    while let Some(piece) = response.chunk().await.map_err(|error| broken(&error))? {
        if body.len() + piece.len() > cap {
            return Err(Broken::TooLarge);
        }
        append(&mut body, &piece);
    }
    Ok(body.freeze())
}

/// Only the kind of an error is kept: its text can hold the URL and what the peer sent.
pub(super) fn broken(error: &reqwest::Error) -> Broken {
    if !error.is_connect() {
        return Broken::Lost;
    }
    let mut causes = std::iter::successors(error.source(), |&cause| cause_of(cause));
    Broken::NotConnected(causes.find_map(obstacle).unwrap_or(Obstacle::Other))
}

/// What an I/O error wraps is not its source: that would be the source of what it wraps.
fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

/// The obstacle that one cause of an error tells of.
fn obstacle(cause: &(dyn Error + 'static)) -> Option<Obstacle> {
    if cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        return Some(Obstacle::NobodyListens);
    }
    match cause.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(fault) => Some(match fault {
            // The signature is bad where the authority was made anew under its old name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Obstacle::Untrusted,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Obstacle::OtherHost,
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Obstacle::OutOfDate,
            _ => Obstacle::NoServersCertificate,
        }),
        rustls::Error::InvalidMessage(_) => Some(Obstacle::NoTls),
        _ => None,
    }
}

/// A TLS configuration that trusts the authorities of a PEM text and nobody else: whoever names a private authority means it.
/// Without any it trusts nobody, which is what a client for plain http needs. `None` if one of them is no authority.
pub fn trust_only(authorities: &[u8]) -> Option<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        roots.add(certificate.ok()?).ok()?;
    }
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    Some(config.with_root_certificates(roots).with_no_client_auth())
}
