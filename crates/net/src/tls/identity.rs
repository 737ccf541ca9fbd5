use std::net::IpAddr;

use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

/// Who a peer is, by its certificate: the URIs, DNS names and IP addresses in it. Those of the authorities above it do not count, as
/// they do in Istio: whoever has a certificate from an authority is not the authority.
#[derive(Clone, Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    names: Vec<String>,
}

impl Identity {
    /// The identity in a certificate, that of a peer rather than of an authority.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let parsed = EndEntityCert::try_from(certificate).map_err(|error| error.to_string())?;
        let names = parsed.valid_uri_names().chain(parsed.valid_dns_names()).map(str::to_owned).collect();
        Ok(Self { names, certificate: certificate.clone().into_owned() })
    }

    /// The identity of who showed these certificates, its own first. One who showed none has no names.
    pub fn of_chain(chain: &[CertificateDer<'_>]) -> Result<Option<Self>, String> {
        chain.first().map(Self::of).transpose()
    }

    /// The URIs and DNS names in the certificate.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether the certificate has exactly that name or address in it.
    pub fn has(&self, name: &str) -> bool {
        let address = || {
            let address: IpAddr = name.parse().ok()?;
            let parsed = EndEntityCert::try_from(&self.certificate).ok()?;
            parsed.verify_is_valid_for_subject_name(&ServerName::from(address)).ok()
        };
        self.names.iter().any(|known| known == name) || address().is_some()
    }
}
