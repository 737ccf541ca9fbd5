//! Network plumbing of mixer-adapter, one of each machine.
//!
//! - [`Listener`]: accepts connections and serves HTTP on them, with limits, ages, drain and optional TLS.
//! - [`Workers`]: the threads that connections are served on.
//! - [`grpc::UnaryService`]: the unary path of a gRPC server, as a tower service.
//! - [`Backoff`]: delays between attempts, with jitter.
//! - [`HttpClient`]: HTTP/1.1 and TLS for requests that are rare.
//! - [`tls`]: mutual TLS for both ends of a connection, with certificates that reload.
//!
//! # Features
//!
//! * `tls` (default): TLS for servers and clients. Without it their settings are errors.

mod authorization;
mod backoff;
mod connection;
mod connections;
mod file;
pub mod grpc;
mod http_client;
mod limits;
mod listener;
mod memory;
mod preface;
mod socket;
pub mod tls;
mod tokens;
mod workers;

pub use authorization::Authorization;
pub use backoff::{Backoff, Delays, random};
pub use connection::{Connection, ConnectionLimits, HttpService, Protocol};
pub use file::read_file;
pub use http_client::{HttpClient, HttpError, with_causes};
pub use limits::{Limit, LimitHits};
pub use listener::Listener;
pub use memory::available_memory;
pub use socket::{ListenAddress, Stream};
pub use tokens::{Tokens, TokensError};
pub use workers::{OwnThread, Workers};
