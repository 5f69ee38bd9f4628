//! Accepts connections on 127.0.0.1 and sees each to a readable end.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http::header::CONNECTION;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;
use tracing::{debug, warn};

use super::clock::{ClockedSocket, Phase};
use super::peer::Peer;
use super::places::{Place, Places};
use crate::settings::Settings;

/// The largest head of a request in bytes, its longest legal token included.
const HEAD_CAP: usize = 64 * 1024;

/// How many connections may wait in the kernel's line: a burst longer than that costs the late ones a second.
const BACKLOG: u32 = 1024;

/// How long what an early-refused client still sends is discarded, so that it gets to read the answer.
const LINGER: Duration = Duration::from_secs(5);

/// How many bodies of the largest allowed size are discarded so at most. One is not enough: a body that is refused for its size
/// is larger than that, and its sender has to get to the end of it before it reads.
const LINGER_BODIES: u64 = 4;

/// The same patience for a connection that ends because Weir does: nobody should wait for it.
const LINGER_AT_THE_END: Duration = Duration::from_millis(300);

/// Opens the port on 127.0.0.1, the one address there is (contract, "Security floor"). Port 0 takes any free one.
///
/// # Errors
/// The port is in use or may not be opened.
pub fn bind(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    // As tokio's own bind does: a restart must not wait for connections of the last run.
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    socket.listen(BACKLOG)
}

/// What all connections of one listener share.
#[derive(Debug, Clone)]
pub struct Connections {
    router: Router,
    places: Places,
    keep_alive: Duration,
    head: Duration,
    body_cap: u64,
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl Connections {
    /// Connections to `router`; they end once `closing` is cancelled and their request is answered.
    pub fn new(router: Router, settings: &Settings, tasks: TaskTracker, closing: CancellationToken) -> Self {
        Connections {
            router,
            places: Places::new(settings.limits.connections),
            keep_alive: settings.timeouts.keep_alive,
            head: settings.timeouts.head,
            body_cap: settings.limits.body,
            tasks,
            closing,
        }
    }

    /// Accepts until `closing`. With `limits.connections` open, an idle one ends for each that comes; where none is idle, new ones
    /// wait in the kernel's line.
    pub async fn accept(self, listener: TcpListener) {
        loop {
            let accepted = async {
                let socket = listener.accept().await?.0;
                Ok((socket, self.places.take().await))
            };
            match self.closing.run_until_cancelled(accepted).await {
                None => return,
                Some(Ok((socket, place))) => {
                    let connections = self.clone();
                    self.tasks.spawn(async move { connections.serve(socket, place).await });
                }
                Some(Err(error)) => {
                    let error: io::Error = error;
                    // Out of file descriptors, usually: the next moment may be better, and spinning makes it worse.
                    warn!(kind = %error.kind(), "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    async fn serve(&self, socket: TcpStream, place: Place) {
        // A reply is one small write; waiting to fill a packet only delays it.
        let _ = socket.set_nodelay(true);
        let phase = place.phase.clone();
        let peer = Peer::new(socket);
        let router = self.router.clone();
        let socket = ClockedSocket::new(peer.clone(), phase.clone(), self.keep_alive, self.head);
        let service = service_fn(move |mut request: Request<Incoming>| {
            phase.begin_work();
            request.extensions_mut().insert(peer.clone());
            let router = router.clone();
            let phase = phase.clone();
            Box::pin(async move {
                let response = router.oneshot(request.map(Body::new)).await?;
                // A connection that ends with its answer never is idle again.
                let phase = (!response.headers().contains_key(CONNECTION)).then_some(phase);
                Ok::<_, Infallible>(response.map(|body| AnswerBody { body, phase }))
            })
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_buf_size(HEAD_CAP)
            .serve_connection(TokioIo::new(socket), service);
        match run(connection, &self.closing, &place).await {
            // Nobody waits for an answer on an idle connection.
            Ok(_) if place.needed.is_cancelled() && place.phase.is_idle() => {}
            Ok(socket) => {
                place.phase.begin_work();
                if let Some(socket) = socket.into_inner().into_socket() {
                    self.linger(socket).await;
                }
            }
            Err(error) => debug!(parse = error.is_parse(), "a connection ended early"),
        }
    }

    /// Ends a connection so that its last answer can be read even by a client that writes everything first: half-close, discard what
    /// still comes (a few bodies' worth, for a few seconds), close. Closing at once would make the kernel answer those
    /// bytes with a reset, which throws the answer away.
    async fn linger(&self, mut socket: TcpStream) {
        if socket.shutdown().await.is_err() {
            return;
        }
        let discard = async {
            let mut discarded = 0;
            let mut buffer = vec![0; 16 * 1024];
            while discarded <= self.body_cap.saturating_mul(LINGER_BODIES) {
                match socket.read(&mut buffer).await {
                    Ok(0) | Err(_) => return,
                    Ok(read) => discarded += read as u64,
                }
            }
        };
        let patience = if self.closing.is_cancelled() { LINGER_AT_THE_END } else { LINGER };
        let _ = tokio::time::timeout(patience, discard).await;
    }
}

/// Runs a connection to its end, or to the end of its current request once `closing` is cancelled or its place is needed, and
/// gives its socket back open.
async fn run<S, B>(
    mut connection: http1::Connection<TokioIo<ClockedSocket<Peer>>, S>,
    closing: &CancellationToken,
    place: &Place,
) -> hyper::Result<ClockedSocket<Peer>>
where
    S: HttpService<Incoming, ResBody = B> + Unpin,
    S::Future: Unpin,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: http_body::Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let told = async {
        tokio::select! {
            () = closing.cancelled() => {}
            () = place.needed.cancelled() => {}
        }
    };
    // The connection first: what has arrived by now is a request, and it is answered.
    tokio::select! {
        biased;
        ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => {
            ended?;
            return Ok(connection.into_parts().io.into_inner());
        }
        () = told => {}
    }
    let mut has_begun_to_end = false;
    poll_fn(|cx| {
        let ended = connection.poll_without_shutdown(cx);
        // hyper would end a kept connection in the middle of a head.
        if ended.is_ready() || has_begun_to_end || (place.phase.is_in_head() && !closing.is_cancelled()) {
            return ended;
        }
        has_begun_to_end = true;
        Pin::new(&mut connection).graceful_shutdown();
        connection.poll_without_shutdown(cx)
    })
    .await?;
    Ok(connection.into_parts().io.into_inner())
}

/// The body of an answer, which tells when it is written and its connection is idle.
struct AnswerBody {
    body: Body,
    phase: Option<Phase>,
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if let Some(phase) = &self.phase {
            phase.end_work();
        }
    }
}
