//! The connections that turns go over. Each belongs to one turn at a time; where the server keeps it, it is used again.
//!
//! A turn drives its own connection: no task stands between, so that nothing has to be handed over, and dropping a turn closes
//! its connection at once.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::{CONNECTION, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode, Uri};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::body::SlicedBody;
use super::broken::{Broken, Obstacle};
use super::client::IDLE_CONNECTION;

/// Within this a connection that was closed before a turn was written into it shows that. Whoever closes it later had the turn,
/// and may have begun it.
const STALE_WITHIN: Duration = Duration::from_secs(1);

/// How long the rest of an answer that is whole is listened to, so that its connection can be used again.
const END_OF_AN_ANSWER: Duration = Duration::from_secs(1);

/// So many bytes are read at a stretch where they come faster than they are used: then the others have a turn, and the clocks are
/// looked at.
const AT_A_STRETCH: usize = 64 * 1024;

/// After so long a silence the system asks the other side whether it is there, and again so long after that.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// After so many questions without an answer the connection is lost.
const SIGNS_MISSED: u32 = 3;

/// The most that such a rest may have, in bytes.
const LONGEST_END: usize = 64 * 1024;

/// Opens connections to one server, and keeps those that can be used again.
pub struct Connections {
    opener: HttpsConnector<HttpConnector>,
    address: Uri,
    headers: HeaderMap,
    patience: Duration,
    kept: Arc<Kept>,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connections({})", self.address)
    }
}

impl Connections {
    /// Connections to the server at `address`; `headers` go with every question. One may take `patience` to come about.
    pub fn new(address: Uri, headers: HeaderMap, tls: rustls::ClientConfig, patience: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Of several addresses each gets its share of the time.
        tcp.set_connect_timeout(Some(patience));
        // A machine that loses its power, or a link that forgets, says nothing: so it is asked.
        tcp.set_keepalive(Some(SIGN_OF_LIFE));
        tcp.set_keepalive_interval(Some(SIGN_OF_LIFE));
        tcp.set_keepalive_retries(Some(SIGNS_MISSED));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(SIGN_OF_LIFE * 2));
        let opener = HttpsConnector::from((tcp, tls));
        Connections { opener, address, headers, patience, kept: Arc::default() }
    }

    /// Sends a question and waits for the head of its answer.
    ///
    /// With `keep`, a connection of an earlier turn is used where one is left. The server may be just closing it: a question that
    /// was not written, or that died within a second without a byte of an answer, is sent once more on a new connection
    /// (conformance of the contract: no turn that may have begun is sent twice). Without `keep` the connection is the question's
    /// own, and the server is told so.
    ///
    /// # Errors
    /// No connection, or no head of an answer.
    pub async fn ask(&self, path: PathAndQuery, body: SlicedBody, keep: bool) -> Result<Response, Broken> {
        let mut question = Request::new(body);
        *question.method_mut() = Method::POST;
        *question.uri_mut() = path.into();
        *question.headers_mut() = self.headers.clone();
        let mut connection = None;
        if keep {
            connection = self.kept.take();
        } else {
            question.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let kept = keep.then_some(&self.kept);
        if let Some(connection) = connection {
            match connection.ask(question.clone(), kept).await {
                Ok(response) => return Ok(response),
                // The server was restarted, or hangs up early: the others are no better.
                Err(Unanswered::Stale) => self.kept.clear(),
                Err(Unanswered::Lost) => return Err(Broken::Lost),
            }
        }
        Box::pin(self.open()).await?.ask(question, kept).await.map_err(|_| Broken::Lost)
    }

    async fn open(&self) -> Result<Connection, Broken> {
        let opening = self.opener.clone().oneshot(self.address.clone());
        let socket = match tokio::time::timeout(self.patience, opening).await {
            Ok(socket) => socket.map_err(|error| Broken::NotConnected(Obstacle::of(&*error)))?,
            Err(_) => return Err(Broken::NotConnected(Obstacle::Other)),
        };
        let heard = Arc::new(AtomicBool::new(false));
        let socket = HearingSocket { socket: TokioIo::new(socket), at_a_stretch: 0, heard: Arc::clone(&heard) };
        let (sender, driver) = http1::handshake(TokioIo::new(socket)).await.map_err(|_| Broken::Lost)?;
        Ok(Connection { sender, driver: Box::new(driver), ended: false, heard, since: None })
    }
}

/// A connection that no other turn uses.
struct Connection {
    sender: SendRequest<SlicedBody>,
    driver: Box<http1::Connection<TokioIo<HearingSocket>, SlicedBody>>,
    /// Whether the driver has come to its end.
    ended: bool,
    /// Whether a byte came since this was last set back.
    heard: Arc<AtomicBool>,
    /// Since when it is kept unused; `None` for a new one.
    since: Option<Instant>,
}

/// Why a question has no answer.
enum Unanswered {
    /// The connection was closed before the question came: nothing can have begun.
    Stale,
    /// Nobody can tell.
    Lost,
}

impl Connection {
    /// Lets the connection do what it can; says whether it has ended.
    fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        self.ended = self.ended || Pin::new(&mut self.driver).poll(cx).is_ready();
        self.ended
    }

    /// Whether another question can be sent at once.
    fn is_free(&mut self, cx: &mut Context<'_>) -> bool {
        !self.drive(cx) && self.sender.is_ready()
    }

    /// Whether this kept connection is open and was not kept for too long.
    fn is_still_good(&mut self) -> bool {
        let fresh = self.since.is_some_and(|since| since.elapsed() < IDLE_CONNECTION);
        // Nobody waits for anything on it.
        fresh && self.is_free(&mut Context::from_waker(Waker::noop()))
    }

    async fn ask(mut self, question: Request<SlicedBody>, kept: Option<&Arc<Kept>>) -> Result<Response, Unanswered> {
        let asked = Instant::now();
        self.heard.store(false, Ordering::Relaxed);
        let mut answering = std::pin::pin!(self.sender.try_send_request(question));
        let answer = poll_fn(|cx| {
            let ended = self.drive(cx);
            // Only the driver can bring an answer, and it was polled just now: nobody has to wake anybody for it.
            match answering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => Poll::Ready(answer.map_err(|error| error.message().is_none())),
                Poll::Pending if ended => Poll::Ready(Err(true)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        match answer {
            Ok(answer) => Ok(Response { connection: Some(self), kept: kept.cloned(), ..answer.into() }),
            Err(was_written) => {
                let at_once = self.since.is_some() && asked.elapsed() < STALE_WITHIN;
                let nothing_came = !self.heard.load(Ordering::Relaxed);
                Err(if !was_written || at_once && nothing_came { Unanswered::Stale } else { Unanswered::Lost })
            }
        }
    }
}

/// An answer whose head is there.
pub struct Response {
    status: StatusCode,
    body: UnsyncBoxBody<Bytes, Broken>,
    connection: Option<Connection>,
    kept: Option<Arc<Kept>>,
}

impl<B> From<http::Response<B>> for Response
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    /// An answer that has no connection that could be used again.
    fn from(answer: http::Response<B>) -> Self {
        let (head, body) = answer.into_parts();
        let body = body.map_err(|_| Broken::Lost).boxed_unsync();
        Response { status: head.status, body, connection: None, kept: None }
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Response({})", self.status)
    }
}

impl Response {
    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The next bytes of its body; `None` at the end.
    ///
    /// # Errors
    /// The connection was lost before the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Broken> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        let mut driven = false;
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Ok(Some(data)));
                    }
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(Broken::Lost)),
                Poll::Ready(None) => {
                    self.keep(cx);
                    return Poll::Ready(Ok(None));
                }
                Poll::Pending if driven => {
                    let lost = self.connection.as_ref().is_some_and(|connection| connection.ended);
                    return if lost { Poll::Ready(Err(Broken::Lost)) } else { Poll::Pending };
                }
                Poll::Pending => {
                    if let Some(connection) = &mut self.connection {
                        connection.drive(cx);
                    }
                    driven = true;
                }
            }
        }
    }

    /// Gives the connection back at the end of the answer, if it can be used again.
    fn keep(&mut self, cx: &mut Context<'_>) {
        if let (Some(mut connection), Some(kept)) = (self.connection.take(), self.kept.take())
            && connection.is_free(cx)
        {
            kept.add(connection);
        }
    }

    /// Lets go of an answer of which nothing more is wanted. Mostly only its last bytes are to come; they are waited for, so that
    /// the connection can be used again.
    pub fn let_go(mut self) {
        if self.kept.is_none() {
            return;
        }
        let mut rest = Box::pin(async move {
            let mut length = 0;
            while let Ok(Some(piece)) = self.chunk().await {
                length += piece.len();
                if length > LONGEST_END {
                    return;
                }
            }
        });
        if (&mut rest).now_or_never().is_none() {
            tokio::spawn(tokio::time::timeout(END_OF_AN_ANSWER, rest));
        }
    }
}

/// Connections that wait for their next turn. They end when they are used for nothing for [`IDLE_CONNECTION`].
#[derive(Default)]
struct Kept(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    connections: Vec<Connection>,
    /// Whether a task ends those that waited too long.
    swept: bool,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that was used last and is still open.
    fn take(&self) -> Option<Connection> {
        loop {
            let mut connection = self.lock().connections.pop()?;
            if connection.is_still_good() {
                return Some(connection);
            }
        }
    }

    fn clear(&self) {
        self.lock().connections.clear();
    }

    fn add(self: Arc<Self>, mut connection: Connection) {
        connection.since = Some(Instant::now());
        let mut waiting = self.lock();
        waiting.connections.push(connection);
        if !std::mem::replace(&mut waiting.swept, true) {
            tokio::spawn(Arc::clone(&self).sweep());
        }
    }

    async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(IDLE_CONNECTION / 4).await;
            let mut waiting = self.lock();
            waiting.connections.retain_mut(Connection::is_still_good);
            if waiting.connections.is_empty() {
                waiting.swept = false;
                return;
            }
        }
    }
}

/// A socket that notes when something comes over it, and gives way when that is much.
struct HearingSocket {
    socket: TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>,
    /// Bytes that were read since somebody else had a turn.
    at_a_stretch: usize,
    heard: Arc<AtomicBool>,
}

impl AsyncRead for HearingSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.at_a_stretch > AT_A_STRETCH {
            self.at_a_stretch = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buffer);
        let length = buffer.filled().len() - before;
        if length > 0 {
            self.heard.store(true, Ordering::Relaxed);
        }
        self.at_a_stretch = if read.is_pending() { 0 } else { self.at_a_stretch + length };
        read
    }
}

impl AsyncWrite for HearingSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
