use std::{
    io,
    path::{Path, PathBuf},
};

#[cfg(feature = "tls")]
use super::TlsFile;

/// Reads a whole file.
pub type ReadFile = Box<dyn Fn(&Path) -> io::Result<Vec<u8>> + Send + Sync>;

/// Files for mutual TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The certificate of this program, with intermediate ones.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authorities that issue the certificates of peers. The system's are not trusted.
    pub authorities: PathBuf,
}

impl Default for Credentials {
    /// The paths at which Istio mounts them (docs/behaviour/mcp.md#certificate-files).
    fn default() -> Self {
        Self {
            certificate: "/etc/certs/cert-chain.pem".into(),
            key: "/etc/certs/key.pem".into(),
            authorities: "/etc/certs/root-cert.pem".into(),
        }
    }
}

/// The certificate of a server, and the clients that it trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// The files of the server's certificate and its key.
    pub identity: KeyPair,
    /// A file with the authorities that issue the certificates of clients; clients show none without.
    pub client_authorities: Option<PathBuf>,
    /// Whether clients without a certificate may connect, too: they may be known by a token.
    pub optional_certificates: bool,
    /// Whether HTTP/1.1 is the only protocol that clients are offered (ALPN), and not HTTP/2, too.
    pub http1: bool,
}

/// The servers that a client trusts, and the certificate that it shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// Trusts the authorities that the system trusts.
    pub system_roots: bool,
    /// A file with authorities to trust.
    pub authorities: Option<PathBuf>,
    /// The files of the client's own certificate and its key; none is shown without.
    pub identity: Option<KeyPair>,
    /// The name that a server's certificate must have.
    pub server: ServerIdentity,
}

/// The files of a certificate and its private key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    /// The certificate, with intermediate ones.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The name that a server's certificate must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerIdentity {
    /// The name by which the server is dialed.
    #[default]
    DialedName,
    /// Any of these SANs.
    AnyOf(Vec<String>),
    /// Any URI SAN of the client's own certificate.
    SameAsClient,
}

impl ClientOptions {
    /// Mutual TLS with `credentials`. A server must have a SAN in `servers`, or the dialed name if `servers` is empty.
    pub fn mutual(credentials: Credentials, servers: Vec<String>) -> Self {
        let Credentials { certificate, key, authorities } = credentials;
        Self {
            system_roots: false,
            authorities: Some(authorities),
            identity: Some(KeyPair { certificate, key }),
            server: if servers.is_empty() {
                ServerIdentity::DialedName
            } else {
                ServerIdentity::AnyOf(servers)
            },
        }
    }

    /// Trusts the authorities that the system trusts, and shows no certificate.
    pub fn system() -> Self {
        Self { system_roots: true, ..Self::default() }
    }
}

#[cfg(feature = "tls")]
impl ClientOptions {
    pub(super) fn files(&self) -> Vec<(TlsFile, PathBuf)> {
        let identity = self.identity.as_ref();
        let files = [
            (TlsFile::Authorities, self.authorities.as_ref()),
            (TlsFile::Certificate, identity.map(|identity| &identity.certificate)),
            (TlsFile::Key, identity.map(|identity| &identity.key)),
        ];
        files.into_iter().filter_map(|(file, path)| Some((file, path?.clone()))).collect()
    }
}
