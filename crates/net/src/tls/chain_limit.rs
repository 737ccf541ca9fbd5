//! A limit on certificate chains, before the cost of their verification.

use std::{fmt::Debug, sync::Arc};

use tokio_rustls::rustls::{
    DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

/// The maximum number of certificates of a peer. Paths through certificates that sign each other take exponential time.
const MAX_CERTIFICATES: usize = 8;
/// The maximum size of the certificates of a peer in bytes.
const MAX_BYTES: usize = 16 << 10;

/// A verifier of chains within the limit, by another verifier.
#[derive(Debug)]
pub(super) struct ChainLimit<V: ?Sized>(Arc<V>);

impl<V: ?Sized> ChainLimit<V> {
    pub(super) fn new(verifier: Arc<V>) -> Self {
        Self(verifier)
    }
}

fn check(end_entity: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>]) -> Result<(), Error> {
    let count = 1 + intermediates.len();
    let bytes = intermediates.iter().fold(end_entity.len(), |bytes, certificate| bytes + certificate.len());
    if count <= MAX_CERTIFICATES && bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(Error::General(format!(
        "the peer shows {count} certificates of {bytes} bytes; at most {MAX_CERTIFICATES} of {MAX_BYTES} bytes are verified"
    )))
}

impl ClientCertVerifier for ChainLimit<dyn ClientCertVerifier> {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        check(end_entity, intermediates)?;
        self.0.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

impl ServerCertVerifier for ChainLimit<dyn ServerCertVerifier> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        check(end_entity, intermediates)?;
        self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(certificates: usize, bytes: usize) -> Vec<CertificateDer<'static>> {
        (0..certificates).map(|_| CertificateDer::from(vec![0; bytes])).collect()
    }

    #[test]
    fn chains_beyond_the_limit_are_refused() {
        let is_refused = |certificates: usize, bytes: usize| {
            let chain = chain(certificates, bytes);
            check(&chain[0], &chain[1..]).is_err()
        };
        assert!(!is_refused(MAX_CERTIFICATES, MAX_BYTES / MAX_CERTIFICATES));
        assert!(is_refused(MAX_CERTIFICATES + 1, 1));
        assert!(is_refused(2, MAX_BYTES / 2 + 1));
    }
}
