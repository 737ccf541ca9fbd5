use std::{io, path::PathBuf, time::Duration};

/// A failure of TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file that cannot be used.
    #[error("{} {reason}", path.display())]
    File {
        /// The purpose of the file.
        file: TlsFile,
        /// The path of the file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// No certificate authority to trust.
    #[error("no authority is given, and the system trusts none")]
    NoAuthorities,
    /// Settings that rustls refuses.
    #[error("{0}")]
    Config(String),
    /// A host that no certificate can be for.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    ServerName(String),
    /// A handshake that failed.
    #[error("TLS handshake with {peer}: {source}")]
    Handshake {
        /// The name of the peer.
        peer: String,
        /// The reason.
        source: io::Error,
    },
    /// A handshake that took too long.
    #[error("TLS handshake with {peer}: no answer within {limit:?}")]
    Timeout {
        /// The name of the peer.
        peer: String,
        /// The limit.
        limit: Duration,
    },
    /// The cargo feature `tls` is off.
    #[error("this build has no TLS (the cargo feature `tls` is off)")]
    Disabled,
}

/// The purpose of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFile {
    /// The authorities that are trusted.
    Authorities,
    /// The own certificate.
    Certificate,
    /// The private key of the own certificate.
    Key,
}
