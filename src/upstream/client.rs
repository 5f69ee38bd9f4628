//! The HTTP client toward one model server.
//!
//! It uses no proxy, follows no redirect, passes no header of the phone's on and sets its own `Host`: Ollama answers 403 with
//! an empty body to a foreign `Host` or `Origin`, and llama.cpp keeps generating after a hang-up if it sees a session header.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use reqwest::redirect::Policy;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::ExposeSecret as _;
use tower::{Layer, Service};
use url::Url;

use super::body::SlicedBody;
use crate::settings::UpstreamSettings;

/// How long an idle connection is kept for the next turn. uvicorn (vLLM, SGLang), cpp-httplib (llama.cpp) and LM Studio
/// hang up after 5 s, and a request written into a connection that is just being closed is lost.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);

/// The largest answer to a discovery call that is read, in bytes.
const DISCOVERY_CAP: usize = 8 * 1024 * 1024;

/// How long a discovery call may take: it loads nothing, so a server that is well answers at once.
const DISCOVERY_TIME: Duration = Duration::from_secs(5);

/// Counts the connections that are opened, so that a request which failed can be known to have gone out on a kept one.
#[derive(Debug, Clone, Default)]
struct OpenedConnections(Arc<AtomicU64>);

impl OpenedConnections {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl<S> Layer<S> for OpenedConnections {
    type Service = CountingConnector<S>;

    fn layer(&self, connector: S) -> CountingConnector<S> {
        CountingConnector { connector, opened: self.clone() }
    }
}

#[derive(Debug, Clone)]
struct CountingConnector<S> {
    connector: S,
    opened: OpenedConnections,
}

impl<S: Service<Target>, Target> Service<Target> for CountingConnector<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, target: Target) -> S::Future {
        self.opened.0.fetch_add(1, Ordering::AcqRel);
        self.connector.call(target)
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// No connection came about (refused, no such host, TLS), so nothing was sent.
    #[error("no connection could be made")]
    NotConnected,
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

/// The client could not be made from the settings; the sentence names the key.
#[derive(Debug, thiserror::Error)]
#[error("upstream.{name}: {reason}")]
pub struct ClientError {
    name: String,
    reason: &'static str,
}

/// The whole answer to a discovery call.
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
    opened: OpenedConnections,
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
        let opened = OpenedConnections::default();
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .referer(false)
            .http1_only()
            .tcp_nodelay(true)
            .connect_timeout(connect)
            .pool_idle_timeout(IDLE_CONNECTION)
            .connector_layer(opened.clone())
            .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers);
        if let Some(authorities) = &settings.certificate_authorities {
            let tls = trust_only(authorities)
                .ok_or_else(|| refused("ca_file: it holds no certificate that can be used as an authority"))?;
            builder = builder.tls_backend_preconfigured(tls);
        }
        let http =
            builder.build().map_err(|_| refused("the system's TLS certificates could not be read; set ca_file"))?;
        Ok(Client { http, base: settings.url.clone(), opened })
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
    /// There is no whole answer, whatever its status, within 5 s and 8 MiB.
    pub async fn get(&self, path: &str) -> Result<Fetched, Broken> {
        self.fetch(self.http.get(self.url(path))).await
    }

    /// Like [`Client::get`], for the discovery calls that are a `POST` of a small JSON document.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub async fn ask(&self, path: &str, question: &serde_json::Value) -> Result<Fetched, Broken> {
        let mut body = SlicedBody::default();
        body.json(question);
        self.send(path, body.finish()).await
    }

    /// Like [`Client::ask`], for a question that is a whole conversation.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub async fn send(&self, path: &str, body: SlicedBody) -> Result<Fetched, Broken> {
        self.fetch(self.http.request(Method::POST, self.url(path)).headers(json()).body(wrap(body))).await
    }

    async fn fetch(&self, request: reqwest::RequestBuilder) -> Result<Fetched, Broken> {
        let whole = async {
            let mut response = request.send().await.map_err(|error| broken(&error))?;
            let body = read_capped(&mut response, DISCOVERY_CAP).await?;
            Ok(Fetched { status: response.status(), headers: response.headers().clone(), body })
        };
        tokio::time::timeout(DISCOVERY_TIME, whole).await.unwrap_or(Err(Broken::Silent))
    }

    /// Sends a turn. The answer's body is read by the caller; dropping it, or this future, closes the connection.
    ///
    /// A kept connection that dies without a byte of an answer was most likely being closed while the turn was written into it:
    /// the turn did not start, and is sent once more on a connection of its own.
    ///
    /// # Errors
    /// No connection, or no head of an answer. There is no clock here: the turn has the only one.
    pub async fn post(&self, path: &str, body: SlicedBody) -> Result<reqwest::Response, Broken> {
        let opened_before = self.opened.count();
        match self.try_post(path, body.clone()).await {
            Err(Broken::Lost) if self.opened.count() == opened_before => self.try_post(path, body).await,
            answer => answer,
        }
    }

    async fn try_post(&self, path: &str, body: SlicedBody) -> Result<reqwest::Response, Broken> {
        let request = self.http.request(Method::POST, self.url(path)).headers(json()).body(wrap(body));
        request.send().await.map_err(|error| broken(&error))
    }
}

fn json() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

fn wrap(body: SlicedBody) -> reqwest::Body {
    reqwest::Body::wrap(body.finish())
}

/// Reads a body of at most `cap` bytes.
pub(super) async fn read_capped(response: &mut reqwest::Response, cap: usize) -> Result<Bytes, Broken> {
    let mut body = BytesMut::new();
    while let Some(piece) = response.chunk().await.map_err(|error| broken(&error))? {
        if body.len() + piece.len() > cap {
            return Err(Broken::TooLarge);
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

/// Only the kind of an error is kept: its text can hold the URL and what the peer sent.
pub(super) fn broken(error: &reqwest::Error) -> Broken {
    if error.is_connect() { Broken::NotConnected } else { Broken::Lost }
}

/// A TLS configuration that trusts the authorities of a PEM file and nobody else: whoever names a private authority means it.
fn trust_only(authorities: &[u8]) -> Option<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        roots.add(certificate.ok()?).ok()?;
    }
    if roots.is_empty() {
        return None;
    }
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    Some(config.with_root_certificates(roots).with_no_client_auth())
}
