//! TLS of this program's own connections: who it is, whom it trusts, and whom it lets in.
//!
//! Certificates, keys and lists are files, and files change: they are looked at before each handshake and from time to time. What
//! cannot be read leaves the former in use, and is told once.

mod access;
mod credentials;
mod file;

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod client;
#[cfg(feature = "tls")]
mod files;
#[cfg(feature = "tls")]
mod identity;
#[cfg(feature = "tls")]
mod pem;
#[cfg(feature = "tls")]
mod reloaded;
#[cfg(feature = "tls")]
mod san;
#[cfg(feature = "tls")]
mod server;

pub use access::{Access, AccessList, AccessSettings};
pub use credentials::Credentials;

#[cfg(not(feature = "tls"))]
pub use absent::{Client, Identity, Secured, Server};
#[cfg(feature = "tls")]
pub use {
    client::{Client, Secured},
    identity::Identity,
    server::Server,
};
#[cfg(feature = "tls")]
pub use {file::read, pem::certificates, pem::private_key, reloaded::Reloaded, san::SanVerifier, san::uris};

#[cfg(all(test, feature = "tls"))]
pub(crate) mod tests;
