//! A port that refuses connections until it is told to listen, and that nobody else can take meanwhile.
use super::upstream::ScriptedUpstream;
use std::net::{SocketAddr, TcpListener};
use tokio::net::TcpSocket;

/// A bound port on which nothing listens: a connection to it is refused.
#[derive(Debug)]
pub struct ReservedPort {
    socket: TcpSocket,
    address: SocketAddr,
}

impl ReservedPort {
    /// Any free port.
    pub fn new() -> Self {
        Self::bind("127.0.0.1:0".parse().unwrap()).unwrap()
    }

    /// This very port, as after a server went away.
    pub fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// The address that refuses.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on a scripted model server listens here.
    pub fn start(self) -> ScriptedUpstream {
        ScriptedUpstream::on(self.listen())
    }

    /// From now on connections are accepted here.
    pub fn listen(self) -> TcpListener {
        let runtime = runtime();
        let listener: TcpListener = runtime.block_on(async { self.socket.listen(128)?.into_std() }).unwrap();
        listener.set_nonblocking(false).unwrap();
        listener
    }
}

/// A runtime for the few socket options that only tokio offers without unsafe code.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap()
}
