//! The HTTP client toward one model server.
//!
//! It uses no proxy, follows no redirect, passes no header of the phone's on and sets its own `Host`: Ollama answers 403 with
//! an empty body to a foreign `Host` or `Origin`, and llama.cpp keeps generating after a hang-up if it sees a session header.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Method, StatusCode};
use reqwest::redirect::Policy;
use secrecy::ExposeSecret as _;
use url::{Position, Url};

use super::body::SlicedBody;
use super::broken::{Broken, Obstacle};
use super::connection::{Connections, Response};
use super::tls::{trust_only, trust_the_system};
use crate::buffer::append;
use crate::settings::UpstreamSettings;

/// How long an idle connection is kept for the next question. uvicorn (vLLM, SGLang), cpp-httplib (llama.cpp) and LM Studio hang
/// up after 5 s.
pub(super) const IDLE_CONNECTION: Duration = Duration::from_secs(4);

/// The largest answer to a discovery call that is read, in bytes.
const DISCOVERY_CAP: usize = 8 * 1024 * 1024;

/// How long a discovery call may take: it loads nothing, so a server that is well answers at once. It is more than
/// `timeouts.connect` is by itself, so that a host that does not answer is always told from a server that says nothing.
const DISCOVERY_TIME: Duration = Duration::from_secs(6);

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

/// A client bound to one base URL. Questions of discovery are few and small, and go through reqwest; turns go over connections
/// that Weir holds itself, because only so it can tell whether a turn was begun when a kept connection is lost.
pub struct Client {
    http: reqwest::Client,
    turns: Connections,
    base: Url,
    /// What stands before the path of every route: of a server behind a front, mostly.
    prefix: String,
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
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION"))));
        if let Some(key) = &settings.api_key {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret()))
                .map_err(|_| refused("api_key_file: the key holds a character that an HTTP header cannot carry"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let authorities = settings.certificate_authorities.as_deref();
        // The system's certificates are only read where they are needed: a plain http upstream works on a system without any.
        let tls = if authorities.is_some() || settings.url.scheme() == "http" {
            trust_only(authorities.unwrap_or_default())
                .ok_or_else(|| refused("ca_file: it holds no certificate that can be used as an authority"))?
        } else {
            trust_the_system().ok_or_else(|| refused("the system's TLS certificates could not be read; set ca_file"))?
        };
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .referer(false)
            .http1_only()
            .tcp_nodelay(true)
            .connect_timeout(connect)
            .pool_idle_timeout(IDLE_CONNECTION)
            .default_headers(headers.clone())
            .tls_backend_preconfigured(tls.clone())
            .build()
            .map_err(|_| refused("no HTTP client could be made"))?;
        let host = HeaderValue::from_str(&settings.url[Position::BeforeHost..Position::AfterPort])
            .map_err(|_| refused("url: its host cannot stand in an HTTP header"))?;
        headers.insert(HOST, host);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let address = http::Uri::try_from(&settings.url[Position::BeforeScheme..Position::AfterPort])
            .map_err(|_| refused("url: it is no address of a server"))?;
        let prefix = settings.url.path().trim_end_matches('/').to_owned();
        Ok(Client { http, turns: Connections::new(address, headers, tls, connect), base: settings.url.clone(), prefix })
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        url.set_path(&format!("{}{path}", self.prefix));
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

    /// Sends a turn. The answer's body is read by the caller; dropping it, or this future, closes the connection. `keep` says
    /// whether the server can be trusted to keep a connection; see [`Connections::ask`].
    ///
    /// # Errors
    /// No connection, or no head of an answer. There is no clock here: the turn has the only one.
    pub async fn post(&self, path: &str, body: SlicedBody, keep: bool) -> Result<Response, Broken> {
        let path = PathAndQuery::try_from(format!("{}{path}", self.prefix)).map_err(|_| Broken::NotUnderstood)?;
        self.turns.ask(path, body.finish(), keep).await
    }
}

/// What became of a question of discovery that has no whole answer.
fn broken(error: &reqwest::Error) -> Broken {
    if error.is_connect() { Broken::NotConnected(Obstacle::of(error)) } else { Broken::Lost }
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
