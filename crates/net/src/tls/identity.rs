use std::net::IpAddr;

use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

/// The identity in a peer's certificate: its URIs, DNS names and IP addresses. Names in the certificates of its authorities do not
/// count, as in Istio.
#[derive(Clone, Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    /// URIs, then DNS names.
    names: Vec<String>,
    uris: usize,
}

impl Identity {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, webpki::Error> {
        let parsed = EndEntityCert::try_from(certificate)?;
        let mut names: Vec<String> = parsed.valid_uri_names().map(str::to_owned).collect();
        let uris = names.len();
        names.extend(parsed.valid_dns_names().map(str::to_owned));
        Ok(Self { names, uris, certificate: certificate.clone().into_owned() })
    }

    /// The identity of a peer with this chain, its own certificate first; `None` for an empty chain.
    pub(super) fn of_chain(chain: &[CertificateDer<'_>]) -> Result<Option<Self>, webpki::Error> {
        chain.first().map(Self::of).transpose()
    }

    /// Returns the URIs and DNS names in the certificate.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn uris(&self) -> &[String] {
        &self.names[..self.uris]
    }

    /// Whether the certificate has exactly this name or IP address.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name) || self.has_address(name).unwrap_or(false)
    }

    fn has_address(&self, name: &str) -> Option<bool> {
        let address: IpAddr = name.parse().ok()?;
        let parsed = EndEntityCert::try_from(&self.certificate).ok()?;
        Some(parsed.verify_is_valid_for_subject_name(&ServerName::from(address)).is_ok())
    }
}
