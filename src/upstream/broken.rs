//! Why there is no answer from a model server, told from the errors of the network and of TLS.

use std::error::Error;
use std::io;

use rustls::CertificateError;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// No connection came about, so nothing was sent.
    #[error("{0}")]
    NotConnected(Obstacle),
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

/// Why no connection came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// Nothing listens at the address.
    #[error("nothing listens there; start the server, or correct the port in its url")]
    NobodyListens,
    /// Nobody who is trusted vouches for its certificate.
    #[error(
        "its certificate is of no authority that is trusted here; put the certificate of its authority (PEM) into a file and name \
         that in ca_file"
    )]
    Untrusted,
    /// The certificate is for other hosts.
    #[error(
        "its certificate is for another host; write url with a name that stands in the certificate, or have this one added to it \
         (ca_file cannot mend that)"
    )]
    OtherHost,
    /// The certificate was valid, or will be.
    #[error("its certificate is not valid at this time; renew it, or set the clock of this machine")]
    OutOfDate,
    /// The certificate cannot be a server's.
    #[error(
        "its certificate cannot be used by a server; have one issued by the authority in ca_file (one that signs itself needs \
         basicConstraints CA:FALSE)"
    )]
    NoServersCertificate,
    /// What answers does not speak TLS.
    #[error("what listens there does not speak TLS; write http:// in its url, or correct the port")]
    NoTls,
    /// The host has no address, or does not answer.
    #[error("no connection came about; correct the host in its url, or let this machine reach it")]
    Other,
}

impl Obstacle {
    /// Whether it stays until a person does something, so that trying again is of no use.
    pub fn is_lasting(self) -> bool {
        !matches!(self, Obstacle::NobodyListens | Obstacle::Other)
    }
}

impl Obstacle {
    /// What stood in the way, told from an error of connecting. Only its kind is kept: its text can hold the URL and what the peer
    /// sent.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Self {
        std::iter::successors(Some(error), |&cause| cause_of(cause)).find_map(obstacle).unwrap_or(Obstacle::Other)
    }
}

/// What an I/O error wraps is not its source: that would be the source of what it wraps.
fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

/// The obstacle that one cause of an error tells of.
fn obstacle(cause: &(dyn Error + 'static)) -> Option<Obstacle> {
    if cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        return Some(Obstacle::NobodyListens);
    }
    match cause.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(fault) => Some(match fault {
            // The signature is bad where the authority was made anew under its old name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Obstacle::Untrusted,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Obstacle::OtherHost,
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Obstacle::OutOfDate,
            _ => Obstacle::NoServersCertificate,
        }),
        rustls::Error::InvalidMessage(_) => Some(Obstacle::NoTls),
        _ => None,
    }
}
