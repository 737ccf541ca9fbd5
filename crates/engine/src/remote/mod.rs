//! Clients of out-of-process adapters, called over gRPC as Mixer calls them.
//!
//! A handler with a `connection` calls a [`RemoteAdapter`], within a session if the adapter is `session_based` and receives
//! its configuration once, before the calls.

mod adapter;
mod address;
mod balancer;
mod check_access;
mod exchange;
mod link;
mod options;
mod security;
mod session;
mod settings;

pub use adapter::RemoteAdapter;
pub use mixer_adapter_net::Backoff;
pub use options::{ClientTls, ExportedSpan, InProcessTransport, Options, Resolver};
pub(crate) use session::{OpenError, Session};

#[cfg(test)]
mod tests;
