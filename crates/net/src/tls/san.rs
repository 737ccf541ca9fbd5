use std::sync::Arc;

use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::Identity;

/// Accepts a server whose certificate chains to a trusted one and has any of these SANs, such as `spiffe://..`. The name by which
/// the server was dialed does not count.
#[derive(Debug)]
pub(super) struct SanVerifier {
    roots: Arc<RootCertStore>,
    accepted: Vec<String>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SanVerifier {
    pub(super) fn new(roots: Arc<RootCertStore>, accepted: Vec<String>) -> Self {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        Self { roots, accepted, algorithms }
    }
}

impl ServerCertVerifier for SanVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        let identity = Identity::of(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        if self.accepted.iter().any(|name| identity.has(name)) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General(format!(
            "the certificate has the SANs {:?}, none of {:?}",
            identity.names(),
            self.accepted
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
