use std::path::PathBuf;

/// Files by which the two ends of a connection know each other, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// This end's certificate, with those in between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities that the other end's certificate is to come from. What the system trusts does not count.
    pub authorities: PathBuf,
}

impl Default for Credentials {
    /// Where Istio puts them (docs/behaviour/mcp.md#certificate-files).
    fn default() -> Self {
        Self {
            certificate: "/etc/certs/cert-chain.pem".into(),
            key: "/etc/certs/key.pem".into(),
            authorities: "/etc/certs/root-cert.pem".into(),
        }
    }
}
