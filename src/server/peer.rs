//! The socket of a connection, shared with whoever needs to know whether its other side is still there.
//!
//! hyper notices a hang-up only by reading, and stops reading as soon as it holds bytes that belong to a later request: a
//! peer that sends a byte too many and goes away would keep its turn running until the deadline.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// How often a peer is looked at that has sent bytes which nobody reads yet: those keep the socket ready, so that only looking
/// tells when it is closed.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The other side of a connection.
#[derive(Debug, Clone)]
pub struct Peer(Arc<TcpStream>);

impl Peer {
    /// The peer at the other end of this socket.
    pub fn new(socket: TcpStream) -> Self {
        Peer(Arc::new(socket))
    }

    /// Waits until the peer has ended its side of the connection, or the connection is lost.
    pub async fn gone(&self) {
        while let Ok(ready) = self.0.ready(Interest::READABLE).await {
            if ready.is_read_closed() {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The socket itself, once nobody else looks at it.
    pub fn into_socket(self) -> Option<TcpStream> {
        Arc::into_inner(self.0)
    }
}

impl AsyncRead for Peer {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (before, room) = (buffer.filled().len(), buffer.remaining());
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            let read = self.0.try_io(Interest::READABLE, || {
                // Into what is not initialised yet: zeroing the buffer first would cost more than reading a request.
                match self.0.try_read_buf(buffer)? {
                    // What leaves room has emptied the socket: it is not asked again before something comes.
                    read if 0 < read && read < room => Err(io::ErrorKind::WouldBlock.into()),
                    _ => Ok(()),
                }
            });
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                ended => return Poll::Ready(ended),
            }
        }
    }
}

impl Peer {
    fn poll_writing(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for Peer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |socket| socket.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |socket| socket.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Nothing: connections are ended by their listener, which takes the socket back for that.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, Peer) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (far, near) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (far.unwrap(), Peer::new(near.unwrap().0))
    }

    #[tokio::test]
    async fn a_peer_that_goes_is_noticed_behind_bytes_that_nobody_reads() {
        let (mut far, near) = pair().await;
        far.write_all(b"more than was asked for").await.unwrap();
        let mut first = [0; 4];
        near.clone().read_exact(&mut first).await.unwrap();
        let mut gone = Box::pin(near.gone());
        assert!(tokio::time::timeout(LOOK_AGAIN * 2, &mut gone).await.is_err());
        drop(far);
        gone.await;
    }

    #[tokio::test]
    async fn bytes_go_both_ways_and_the_socket_comes_back() {
        let (mut far, mut near) = pair().await;
        far.write_all(b"ping").await.unwrap();
        let mut word = [0; 4];
        near.read_exact(&mut word).await.unwrap();
        near.write_all(&word).await.unwrap();
        far.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"ping");
        let looking = near.clone();
        assert!(near.into_socket().is_none());
        assert!(looking.into_socket().is_some());
    }
}
