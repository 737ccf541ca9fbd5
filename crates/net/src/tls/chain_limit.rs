//! A limit on certificate chains, before the cost of their verification.

use std::{collections::BTreeSet, sync::Arc};

use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use webpki::EndEntityCert;

/// The maximum number of certificates of a peer. Paths through certificates that sign each other take exponential time.
const MAX_CERTIFICATES: usize = 8;
/// The maximum size of the certificates of a peer in bytes.
const MAX_BYTES: usize = 16 << 10;
/// How many more certificates than names the authorities of a peer may have, for an authority with two signatures. Certificates with
/// the name of a trusted authority may have issued each other, and each path through them takes a signature of up to 2 ms.
const MAX_NAMESAKES: usize = 1;

/// Verifies the chains of clients that are within the limit by another verifier.
#[derive(Debug)]
pub(super) struct ClientVerifier(pub(super) Arc<dyn ClientCertVerifier>);

/// Returns the certificates of authorities that are verified, each once.
pub(super) fn check<'c>(
    end_entity: &CertificateDer<'_>,
    intermediates: &'c [CertificateDer<'_>],
) -> Result<Vec<CertificateDer<'c>>, Error> {
    let count = 1 + intermediates.len();
    let bytes = intermediates.iter().fold(end_entity.len(), |bytes, certificate| bytes + certificate.len());
    if count > MAX_CERTIFICATES || bytes > MAX_BYTES {
        return Err(Error::General(format!(
            "the peer shows {count} certificates of {bytes} bytes; at most {MAX_CERTIFICATES} of {MAX_BYTES} bytes are verified"
        )));
    }
    let certificates: BTreeSet<&[u8]> = intermediates.iter().map(AsRef::as_ref).collect();
    let mut names = BTreeSet::new();
    let certificates: Vec<_> = certificates.into_iter().map(CertificateDer::from).collect();
    for certificate in &certificates {
        let parsed = EndEntityCert::try_from(certificate).map_err(|_| CertificateError::BadEncoding)?;
        names.insert(parsed.subject().to_vec());
    }
    if certificates.len() - names.len() > MAX_NAMESAKES {
        return Err(Error::General(format!(
            "the peer shows {} certificates of authorities with {} names; at most {MAX_NAMESAKES} more than names are verified",
            certificates.len(),
            names.len()
        )));
    }
    Ok(certificates)
}

impl ClientCertVerifier for ClientVerifier {
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
        self.0.verify_client_cert(end_entity, &check(end_entity, intermediates)?, now)
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
    use test_pki::Authority;

    use super::*;

    #[test]
    fn chains_beyond_the_limit_are_refused() {
        let (authority, other) = (Authority::new().der(), Authority::new().der());
        let is_refused = |intermediates: &[CertificateDer<'static>]| check(&other, intermediates).is_err();
        // One certificate counts as one, however often it is shown.
        assert!(!is_refused(&vec![authority.clone(); MAX_CERTIFICATES - 1]));
        assert!(is_refused(&vec![authority.clone(); MAX_CERTIFICATES]));
        assert!(is_refused(&[CertificateDer::from(vec![0; MAX_BYTES])]));
    }
}
