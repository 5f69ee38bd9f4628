//! Whom Weir trusts when it speaks TLS.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use rustls_platform_verifier::BuilderVerifierExt as _;

/// A TLS configuration that trusts the authorities of a PEM text and nobody else: whoever names a private authority means it.
/// Without any it trusts nobody, which is what a client for plain http needs. `None` if one of them is no authority.
pub fn trust_only(authorities: &[u8]) -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        roots.add(certificate.ok()?).ok()?;
    }
    Some(builder()?.with_root_certificates(roots).with_no_client_auth())
}

/// A TLS configuration that trusts whom the system trusts. `None` if the system's certificates cannot be read.
pub fn trust_the_system() -> Option<ClientConfig> {
    Some(builder()?.with_platform_verifier().ok()?.with_no_client_auth())
}

fn builder() -> Option<ConfigBuilder<ClientConfig, WantsVerifier>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()
}
