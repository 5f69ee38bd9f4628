//! A socket that knows whether its connection is idle, reading a head, or at work, and has a clock for the first two.
//!
//! hyper's own header timeout also runs while a kept-alive connection is idle, which would cut the idle connections of a front
//! (cloudflared and Tailscale keep theirs for 90 s). Here the clock against slow heads starts at the first byte of a head.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

const IDLE: u8 = 0;
const HEAD: u8 = 1;
const WORK: u8 = 2;

/// The phase of a connection, shared between its socket, its requests and the keeper of the places.
#[derive(Debug, Clone, Default)]
pub struct Phase(Arc<State>);

#[derive(Debug, Default)]
struct State {
    phase: AtomicU8,
    became_idle: Arc<Notify>,
}

impl Phase {
    /// The phase of a new connection, which is idle. Whoever waits on `became_idle` is told each time it is so again.
    pub fn new(became_idle: Arc<Notify>) -> Self {
        Phase(Arc::new(State { phase: AtomicU8::new(IDLE), became_idle }))
    }

    /// A request's head is whole: from here on the request has its own clocks.
    pub fn begin_work(&self) {
        self.0.phase.store(WORK, Ordering::Release);
    }

    /// The answer is written: the connection waits for the next request.
    pub fn end_work(&self) {
        self.0.phase.store(IDLE, Ordering::Release);
        self.0.became_idle.notify_one();
    }

    /// Whether the head of a request has begun and is not whole yet.
    pub fn is_in_head(&self) -> bool {
        self.0.phase.load(Ordering::Acquire) == HEAD
    }

    /// Whether the connection has no request, not even the beginning of one.
    pub fn is_idle(&self) -> bool {
        self.0.phase.load(Ordering::Acquire) == IDLE
    }
}

/// The socket with its clock.
#[derive(Debug)]
pub struct ClockedSocket<S> {
    socket: S,
    phase: Phase,
    timer: Pin<Box<Sleep>>,
    timer_is_for: u8,
    keep_alive: Duration,
    head: Duration,
}

impl<S> ClockedSocket<S> {
    /// A socket that ends when it is idle for `keep_alive`, and fails when a head takes longer than `head` from its first byte.
    pub fn new(socket: S, phase: Phase, keep_alive: Duration, head: Duration) -> Self {
        let timer = Box::pin(tokio::time::sleep(keep_alive));
        ClockedSocket { socket, phase, timer, timer_is_for: IDLE, keep_alive, head }
    }

    /// The socket, without its clock.
    pub fn into_inner(self) -> S {
        self.socket
    }

    fn wind(&mut self, phase: u8) {
        let time = if phase == HEAD { self.head } else { self.keep_alive };
        self.timer.as_mut().reset(Instant::now() + time);
        self.timer_is_for = phase;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClockedSocket<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let phase = self.phase.0.phase.load(Ordering::Acquire);
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buffer);
        if phase == WORK {
            self.timer_is_for = WORK;
            return read;
        }
        if phase != self.timer_is_for {
            self.wind(phase);
        }
        if phase == IDLE && buffer.filled().len() > before {
            self.phase.0.phase.store(HEAD, Ordering::Release);
            self.wind(HEAD);
        }
        if self.timer.as_mut().poll(cx).is_pending() {
            return read;
        }
        if self.timer_is_for == HEAD {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the head of a request took too long")));
        }
        // Nothing was read: for hyper the peer has ended an idle connection.
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClockedSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
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
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const KEEP_ALIVE: Duration = Duration::from_secs(180);
    const SLOW_HEAD: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_ends_only_after_its_own_time() {
        let (_peer, socket) = duplex(64);
        let mut socket = ClockedSocket::new(socket, Phase::default(), KEEP_ALIVE, SLOW_HEAD);
        let since = Instant::now();
        assert_eq!(socket.read(&mut [0; 8]).await.unwrap(), 0);
        assert!(since.elapsed() >= KEEP_ALIVE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_head_is_cut_from_its_first_byte_on() {
        let (mut peer, socket) = duplex(64);
        let mut socket = ClockedSocket::new(socket, Phase::default(), KEEP_ALIVE, SLOW_HEAD);
        tokio::time::advance(Duration::from_secs(100)).await;
        peer.write_all(b"G").await.unwrap();
        assert_eq!(socket.read(&mut [0; 8]).await.unwrap(), 1);
        let since = Instant::now();
        assert_eq!(socket.read(&mut [0; 8]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(since.elapsed().as_secs(), SLOW_HEAD.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_at_work_has_no_clock_here_and_is_idle_anew_afterwards() {
        let (mut peer, socket) = duplex(64);
        let phase = Phase::default();
        let mut socket = ClockedSocket::new(socket, phase.clone(), KEEP_ALIVE, SLOW_HEAD);
        peer.write_all(b"GET").await.unwrap();
        assert_eq!(socket.read(&mut [0; 8]).await.unwrap(), 3);
        phase.begin_work();
        assert!(tokio::time::timeout(Duration::from_secs(1000), socket.read(&mut [0; 8])).await.is_err());
        phase.end_work();
        let since = Instant::now();
        assert_eq!(socket.read(&mut [0; 8]).await.unwrap(), 0);
        assert!(since.elapsed() >= KEEP_ALIVE);
    }
}
