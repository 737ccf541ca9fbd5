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
use webpki::EndEntityCert;

use super::Identity;

/// Takes a server whose certificate chains to a trusted one and has one of these SANs, such as `spiffe://..`. The name it was
/// dialed by is not looked at.
#[derive(Debug)]
pub struct SanVerifier {
    roots: Arc<RootCertStore>,
    accepted: Vec<String>,
    /// Who the server is, for messages.
    who: &'static str,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SanVerifier {
    /// Takes servers with one of the SANs given.
    pub fn new(roots: Arc<RootCertStore>, accepted: Vec<String>, who: &'static str) -> Self {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        Self { roots, accepted, who, algorithms }
    }
}

/// The URI SANs of a certificate.
pub fn uris(certificate: &CertificateDer<'_>) -> Result<Vec<String>, webpki::Error> {
    let certificate = EndEntityCert::try_from(certificate)?;
    Ok(certificate.valid_uri_names().map(str::to_owned).collect())
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
            "the certificate of {} has the SANs {:?}, none of {:?}",
            self.who,
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
