//! TLS for both ends of a connection: certificates, trust, and lists of peers that are allowed.
//!
//! Certificates, keys and lists are files, and files change: they are checked before each handshake and from time to time. While a
//! file cannot be used, the last usable content stays, and the fault is logged once.

mod access;
mod connector;
mod error;
mod options;
mod system;

#[cfg(feature = "tls")]
mod chain_limit;
#[cfg(feature = "tls")]
mod client;
#[cfg(not(feature = "tls"))]
mod disabled;
#[cfg(feature = "tls")]
mod handshake_threads;
#[cfg(feature = "tls")]
mod identity;
#[cfg(feature = "tls")]
mod materials;
#[cfg(feature = "tls")]
mod reloader;
#[cfg(feature = "tls")]
mod server;
#[cfg(feature = "tls")]
mod server_verifier;
#[cfg(feature = "tls")]
mod validity;

pub use access::{Access, AccessList, AccessSettings};
pub use connector::Connector;
pub use error::{TlsError, TlsFile};
pub use options::{ClientOptions, Credentials, KeyPair, ReadFile, ServerIdentity, ServerOptions};
pub use system::SystemClient;

#[cfg(not(feature = "tls"))]
pub use disabled::{Client, Identity, Server, TlsStream, certificate_ends, check_server_name};
#[cfg(feature = "tls")]
pub use {
    client::{Client, TlsStream, check_server_name},
    identity::Identity,
    server::Server,
    validity::certificate_ends,
};

/// How long a handshake may take.
#[cfg(feature = "tls")]
const HANDSHAKE: std::time::Duration = std::time::Duration::from_secs(10);

#[cfg(all(test, feature = "tls"))]
pub(crate) mod tests;
