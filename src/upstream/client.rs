//! The HTTP client toward one model server.
//!
//! It uses no proxy, follows no redirect, passes no header of the phone's on and sets its own `Host`: Ollama answers 403 with
//! an empty body to a foreign `Host` or `Origin`, and llama.cpp keeps generating after a hang-up if it sees a session header.

use std::collections::HashMap;
use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use hyper_util::client::legacy::connect::HttpInfo;
use reqwest::redirect::Policy;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;
use url::Url;

use super::body::SlicedBody;
use crate::settings::UpstreamSettings;

/// How long an idle connection is kept for the next turn. uvicorn (vLLM, SGLang), cpp-httplib (llama.cpp) and LM Studio
/// hang up after 5 s, and a request written into a connection that is just being closed is lost.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);

/// After a larger request, in bytes, its connection is not used again. A server may answer before it has read the request, and
/// then read no more: as long as the connection counted as one to keep, the rest of the body would be held for it.
const LARGE_REQUEST: u64 = 1024 * 1024;

/// The largest answer to a discovery call that is read, in bytes.
const DISCOVERY_CAP: usize = 8 * 1024 * 1024;

/// How long a discovery call may take: it loads nothing, so a server that is well answers at once.
const DISCOVERY_TIME: Duration = Duration::from_secs(5);

/// The connections that wait for another request, by their local ports, so that a request which failed can be known to have
/// gone out on a kept one. Counting the connections that were opened would not tell: the pool begins a new one whenever a
/// kept one is not ready in the same instant, and may then use the kept one after all.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptConnections(Arc<Mutex<HashMap<SocketAddr, Instant>>>);

impl KeptConnections {
    /// The answer was read to its end, so its connection is kept for a while.
    pub(super) fn note(&self, answer: &reqwest::Response) {
        if let Some(connection) = answer.extensions().get::<HttpInfo>() {
            let mut kept = self.lock();
            // A port is given to a new connection sooner or later: what was kept too long ago says nothing.
            kept.retain(|_, since| since.elapsed() <= IDLE_CONNECTION);
            kept.insert(connection.local_addr(), Instant::now());
        }
    }

    /// Whether the connection on which this happened was a kept one; it is gone now, and forgotten.
    fn forget(&self, error: &reqwest::Error, asked: Instant) -> bool {
        let mut source = error.source();
        while let Some(cause) = source {
            if let Some(cause) = cause.downcast_ref::<hyper_util::client::legacy::Error>() {
                let mut known = http::Extensions::new();
                if let Some(connection) = cause.connect_info() {
                    connection.get_extras(&mut known);
                }
                let since = known.get::<HttpInfo>().and_then(|connection| self.lock().remove(&connection.local_addr()));
                return since.is_some_and(|since| asked.saturating_duration_since(since) <= IDLE_CONNECTION);
            }
            source = cause.source();
        }
        false
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SocketAddr, Instant>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
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
    kept: KeptConnections,
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
        Ok(Client { http, base: settings.url.clone(), kept: KeptConnections::default() })
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
            self.kept.note(&response);
            Ok(Fetched { status: response.status(), headers: response.headers().clone(), body })
        };
        tokio::time::timeout(DISCOVERY_TIME, whole).await.unwrap_or(Err(Broken::Silent))
    }

    /// Sends a turn. The answer's body is read by the caller; dropping it, or this future, closes the connection. With `last`
    /// the connection is not kept for the next turn.
    ///
    /// A kept connection that dies without a byte of an answer was most likely being closed while the turn was written into it:
    /// the turn did not start, and is sent on another.
    ///
    /// # Errors
    /// No connection, or no head of an answer. There is no clock here: the turn has the only one.
    pub async fn post(&self, path: &str, body: SlicedBody, last: bool) -> Result<reqwest::Response, Broken> {
        let mut headers = json();
        if last || body.length() > LARGE_REQUEST {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        loop {
            let asked = Instant::now();
            let request = self.http.request(Method::POST, self.url(path)).headers(headers.clone());
            match request.body(wrap(body.clone())).send().await {
                // The next one may be a kept one, too; each death takes one away, so this ends.
                Err(error) if broken(&error) == Broken::Lost && self.kept.forget(&error, asked) => {}
                answer => return answer.map_err(|error| broken(&error)),
            }
        }
    }

    /// Where connections whose answer was read to its end are noted.
    pub(super) fn kept(&self) -> &KeptConnections {
        &self.kept
    }
}

fn json() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

fn wrap(body: SlicedBody) -> reqwest::Body {
    reqwest::Body::wrap(body.finish())
}

/// Reads a body of at most `cap` bytes.
async fn read_capped(response: &mut reqwest::Response, cap: usize) -> Result<Bytes, Broken> {
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
