//! A real TLS server in front of a scripted one, with certificates made on the spot.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, crypto};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsAcceptor;

use crate::common::ReservedPort;

/// The name of the host in these tests, as its certificates have it.
pub const HOST: &str = "127.0.0.1";

/// An authority that issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, as a server has them.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    pem: String,
}

impl Authority {
    /// A new one; another of the same name has another key.
    pub fn new(name: &str) -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(parameters, key), pem }
    }

    /// A certificate for the server of this name.
    pub fn issue(&self, host: &str) -> Identity {
        self.sign(parameters(host))
    }

    /// One that was valid once.
    pub fn issue_expired(&self, host: &str) -> Identity {
        let mut parameters = parameters(host);
        parameters.not_before = date_time_ymd(2001, 1, 1);
        parameters.not_after = date_time_ymd(2002, 1, 1);
        self.sign(parameters)
    }

    fn sign(&self, parameters: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        Identity::new(&certificate, &key)
    }

    /// Writes its certificate into a folder, for `ca_file`.
    pub fn write(&self, folder: &Path) -> PathBuf {
        write(folder, "authority.pem", &self.pem)
    }
}

impl Identity {
    /// One that nobody but itself vouches for; `as_authority` is how openssl makes it by default.
    pub fn self_signed(host: &str, as_authority: bool) -> Self {
        let mut parameters = parameters(host);
        if as_authority {
            parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().unwrap();
        Self::new(&parameters.self_signed(&key).unwrap(), &key)
    }

    fn new(certificate: &rcgen::Certificate, key: &KeyPair) -> Self {
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Self { certificate: certificate.der().clone(), key: private, pem: certificate.pem() }
    }

    /// Writes the certificate into a folder, for `ca_file`.
    pub fn write(&self, folder: &Path) -> PathBuf {
        write(folder, "server.pem", &self.pem)
    }
}

fn parameters(host: &str) -> CertificateParams {
    let mut parameters = CertificateParams::new([host.to_owned()]).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, "a model server");
    parameters
}

fn write(folder: &Path, name: &str, pem: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, pem).unwrap();
    path
}

/// Ends TLS and passes everything on to a server that speaks plain HTTP; gone when dropped, and its port with it.
#[derive(Debug)]
pub struct TlsFront {
    address: SocketAddr,
    runtime: Option<Runtime>,
    held: Option<ReservedPort>,
}

impl TlsFront {
    /// Listens on any free port of the loopback address.
    pub fn before(behind: SocketAddr, identity: &Identity) -> Self {
        Self::on(ReservedPort::new(), behind, identity)
    }

    fn on(port: ReservedPort, behind: SocketAddr, identity: &Identity) -> Self {
        let provider = Arc::new(crypto::aws_lc_rs::default_provider());
        let configuration = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())
            .unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_io().build().unwrap();
        let address = port.address();
        let listener = port.listen();
        listener.set_nonblocking(true).unwrap();
        runtime.spawn(accept(listener, TlsAcceptor::from(Arc::new(configuration)), behind));
        Self { address, runtime: Some(runtime), held: None }
    }

    /// `https://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Goes away: open connections are cut and new ones are refused.
    pub fn stop(&mut self) {
        drop(self.runtime.take());
        self.held = ReservedPort::bind(self.address).ok();
    }

    /// Goes away, and is there again with another certificate.
    pub fn come_back_as(&mut self, behind: SocketAddr, identity: &Identity) {
        self.stop();
        *self = Self::on(self.held.take().unwrap(), behind, identity);
    }
}

async fn accept(listener: std::net::TcpListener, acceptor: TlsAcceptor, behind: SocketAddr) {
    let listener = TcpListener::from_std(listener).unwrap();
    while let Ok((socket, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // A client that does not trust the certificate says so and goes.
            let Ok(mut client) = acceptor.accept(socket).await else { return };
            let mut server = TcpStream::connect(behind).await.unwrap();
            // Whoever ends it first, the other is told by the end of its connection.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
    }
}
