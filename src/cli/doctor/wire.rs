//! HTTP toward the adapter that is looked at: one connection at a time, so that it shows what becomes of it.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant, timeout};

use crate::contract::Code;

/// The route of the turns.
pub(super) const CHAT: &str = "/v1/chat/completions";
/// The route of the list.
pub(super) const MODELS: &str = "/v1/models";

/// More than the app takes of an answer.
const ANSWER_CAP: usize = 16 * 1024 * 1024;
/// How long what is on this machine may take to accept a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// The adapter: where it listens, and how it is let in.
#[derive(Debug)]
pub(super) struct Adapter {
    address: SocketAddr,
    bearer: HeaderValue,
}

/// Which token a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// The configured one.
    Right,
    /// One that nobody has configured.
    Wrong,
    /// No header at all.
    Missing,
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// From the first byte of the request to the last of the answer.
    pub(super) took: Duration,
    /// Whether it says that the connection ends.
    pub(super) closes: bool,
}

/// Why there is no whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Silence {
    #[error("nothing listens there")]
    NobodyListens,
    #[error("the connection ended without a whole answer")]
    Lost,
    #[error("what came is not HTTP")]
    NotHttp,
    #[error("no whole answer within {} s", .0.as_secs())]
    Late(Duration),
    #[error("more than 16 MiB came")]
    TooLarge,
}

impl Adapter {
    /// The adapter on this port, let in by this token; `None` for a token that no header can carry.
    pub(super) fn new(port: u16, token: &[u8]) -> Option<Self> {
        let mut bearer = HeaderValue::from_bytes(&[b"Bearer ".as_slice(), token].concat()).ok()?;
        bearer.set_sensitive(true);
        Some(Self { address: (Ipv4Addr::LOCALHOST, port).into(), bearer })
    }

    /// `http://127.0.0.1:PORT`
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A request as the app writes one.
    pub(super) fn request(&self, method: Method, path: &str, token: Token, body: Bytes) -> Request<Full<Bytes>> {
        let has_body = !body.is_empty();
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        // The paths are written in this folder; each is one.
        *request.uri_mut() = path.parse().unwrap_or_default();
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::from_str(&self.address.to_string()) {
            headers.insert(HOST, host);
        }
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if has_body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        match token {
            Token::Right => drop(headers.insert(AUTHORIZATION, self.bearer.clone())),
            // Constant and harmless: whoever listens there learns nothing from it.
            Token::Wrong => drop(headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer weir-doctor-wrong"))),
            Token::Missing => {}
        }
        request
    }

    /// The list of models.
    pub(super) fn list(&self, token: Token) -> Request<Full<Bytes>> {
        self.request(Method::GET, MODELS, token, Bytes::new())
    }

    /// A turn.
    pub(super) fn turn(&self, token: Token, body: &Value) -> Request<Full<Bytes>> {
        self.request(Method::POST, CHAT, token, Bytes::from(body.to_string()))
    }

    /// Asks once, on a connection of its own.
    pub(super) async fn ask(&self, request: Request<Full<Bytes>>, patience: Duration) -> Result<Answer, Silence> {
        self.connect().await?.ask(request, patience).await
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> Result<Connection, Silence> {
        let stream = match timeout(CONNECT_TIME, TcpStream::connect(self.address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                return Err(Silence::NobodyListens);
            }
            Ok(Err(_)) => return Err(Silence::Lost),
            Err(_) => return Err(Silence::Late(CONNECT_TIME)),
        };
        // A connection that is lost at once is found lost by the first question.
        let _ = stream.set_nodelay(true);
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|_| Silence::Lost)?;
        let watched = tokio::spawn(async move { connection.await.map_or_else(|error| is_an_end(&error), |()| true) });
        Ok(Connection { sender, watched })
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Ends with the connection; `true` if it was an end and nothing else, `false` if something came that is no answer.
    watched: JoinHandle<bool>,
}

impl Connection {
    /// Asks, and waits for the whole answer for so long at the most.
    pub(super) async fn ask(&mut self, request: Request<Full<Bytes>>, patience: Duration) -> Result<Answer, Silence> {
        let began = Instant::now();
        let whole = async {
            self.sender.ready().await.map_err(|error| silence(&error))?;
            let response = self.sender.send_request(request).await.map_err(|error| silence(&error))?;
            let (head, mut rest) = response.into_parts();
            let mut body = BytesMut::new();
            while let Some(frame) = rest.frame().await {
                let frame = frame.map_err(|error| silence(&error))?;
                body.extend_from_slice(frame.data_ref().map(Bytes::as_ref).unwrap_or_default());
                if body.len() > ANSWER_CAP {
                    return Err(Silence::TooLarge);
                }
            }
            let word = head.headers.get(CONNECTION).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let closes = head.version == Version::HTTP_10 || word.eq_ignore_ascii_case("close");
            let (status, headers, body) = (head.status, head.headers, body.freeze());
            Ok(Answer { status, headers, body, took: began.elapsed(), closes })
        };
        timeout(patience, whole).await.unwrap_or(Err(Silence::Late(patience)))
    }

    /// Whether the connection, after a question on it failed, had just ended. Otherwise something came that is no answer.
    pub(super) async fn has_just_ended(self) -> bool {
        drop(self.sender);
        timeout(CONNECT_TIME, self.watched).await.is_ok_and(|watched| watched.unwrap_or(true))
    }
}

fn silence(error: &hyper::Error) -> Silence {
    if error.is_parse() { Silence::NotHttp } else { Silence::Lost }
}

/// Whether a connection that failed so was only closed or reset.
fn is_an_end(error: &hyper::Error) -> bool {
    let by_the_system = std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>());
    by_the_system || error.is_incomplete_message() || error.is_closed() || error.is_canceled()
}

impl Answer {
    /// Whether it says that its body is JSON; parameters don't matter.
    pub(super) fn says_json(&self) -> bool {
        let kind = self.content_type();
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    }

    /// The type of its body in its own words, as far as they are fit to be shown.
    pub(super) fn content_type(&self) -> String {
        let kind = self.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        kind.chars().take(40).collect()
    }

    /// Its body as JSON.
    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// What it says went wrong, if it says so in the shape that the contract gives to errors.
    pub(super) fn error(&self) -> Option<ErrorShape> {
        let document = self.json()?;
        let error = document.get("error")?;
        let word = |key: &str| error.get(key).and_then(Value::as_str).filter(|word| !word.is_empty());
        word("message").and(word("type"))?;
        Some(ErrorShape { code: error.get("code").and_then(|code| Code::deserialize(code).ok()) })
    }
}

/// An error in the contract's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ErrorShape {
    /// The code, if it is one of the contract's; whatever else stands there counts as none.
    pub(super) code: Option<Code>,
}
