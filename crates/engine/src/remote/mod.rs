//! Adapters that run elsewhere, called over gRPC as Mixer calls them.
//!
//! A [`RemoteAdapter`] is what a handler with a `connection` calls; a [`Session`] is the same for an adapter with
//! `session_based: true`, which is given its configuration once, ahead of the calls.

mod adapter;
mod address;
mod balancer;
mod exchange;
mod link;
mod options;
mod security;
mod session;
mod settings;

pub use adapter::RemoteAdapter;
pub use mixer_adapter_net::Backoff;
pub use options::{Options, Resolver, Wire};
pub use session::{OpenError, Refused, Session, SessionState, Step};
pub use settings::check_connection;

#[cfg(test)]
mod tests;
