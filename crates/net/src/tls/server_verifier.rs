use std::sync::Arc;

use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::{Identity, TlsError, chain_limit::check};

/// Accepts a server whose certificate chains to a trusted one within the limit of chains, and is for the dialed name. With SANs, such
/// as `spiffe://..`, the certificate has one of them instead, and the dialed name does not count.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    by_name: Arc<WebPkiServerVerifier>,
    roots: Arc<RootCertStore>,
    sans: Option<Vec<String>>,
    provider: Arc<CryptoProvider>,
}

impl ServerVerifier {
    pub(super) fn new(
        roots: Arc<RootCertStore>,
        sans: Option<Vec<String>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<Self>, TlsError> {
        let by_name = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| TlsError::Config(error.to_string()))?;
        Ok(Arc::new(Self { by_name, roots, sans, provider }))
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let intermediates = check(end_entity, intermediates)?;
        let Some(sans) = &self.sans else {
            return self.by_name.verify_server_cert(
                end_entity,
                &intermediates,
                server_name,
                ocsp_response,
                now,
            );
        };
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, &intermediates, now, algorithms)?;
        let identity = Identity::of(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        if sans.iter().any(|name| identity.has(name)) {
            return Ok(ServerCertVerified::assertion());
        }
        let names = identity.names();
        Err(Error::General(format!("the certificate has the SANs {names:?}, none of {sans:?}")))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_name.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_name.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_name.supported_verify_schemes()
    }
}
