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

/// Takes a server whose certificate chains to a trusted one and has one of these URI SANs, `spiffe://..`. Its DNS name is
/// not looked at. This is Mixer's rule for mutual TLS (mixer-wire.md, section c, Connection).
#[derive(Debug)]
pub(super) struct SanVerifier {
    roots: Arc<RootCertStore>,
    accepted: Vec<String>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SanVerifier {
    /// Takes the URI SANs given, or without any those of the client's own certificate.
    pub(super) fn new(
        roots: Arc<RootCertStore>,
        accepted: &[String],
        own: &[CertificateDer<'_>],
    ) -> Result<Self, String> {
        let accepted = match own.first() {
            _ if !accepted.is_empty() => accepted.to_vec(),
            Some(own) => uris(own).map_err(|error| format!("cannot be read: {error}"))?,
            None => Vec::new(),
        };
        if accepted.is_empty() {
            return Err(
                "has no URI SAN, and an adapter is taken for having the same one: use one that has, or name the \
                 SANs of adapters in the options"
                    .to_owned(),
            );
        }
        let algorithms = ring::default_provider().signature_verification_algorithms;
        Ok(Self { roots, accepted, algorithms })
    }
}

fn uris(certificate: &CertificateDer<'_>) -> Result<Vec<String>, webpki::Error> {
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
        let uris = uris(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        if uris.iter().any(|uri| self.accepted.contains(uri)) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General(format!(
            "the adapter's certificate has the URI SANs {uris:?}, none of {:?}",
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
