//! Network plumbing of mixer-adapter.
//!
//! - [`Listener`]: accepts connections and serves HTTP on them, with limits, ages, drain and optional TLS.
//! - [`Workers`]: the threads that connections are served on.
//! - [`grpc::UnaryService`]: the unary path of a gRPC server, as a tower service.
//! - [`Backoff`]: delays between attempts, with jitter.
//! - [`Bucket`]: the state of a rate limit.
//! - [`Shares`]: who holds how much of a limited resource, and who loses first.
//! - [`HttpClient`]: HTTP/1.1 and TLS for requests that are rare; [`HttpPool`] keeps its connections.
//! - [`tls`]: mutual TLS for both ends of a connection, with certificates that reload.
//!
//! # Features
//!
//! * `tls` (default): TLS for servers and clients. Without it their settings are errors.

mod answer_body;
mod authorization;
mod backoff;
mod connection;
mod connections;
mod file;
mod followed_file;
mod frame_limit;
pub mod grpc;
mod http_client;
mod http_pool;
mod huge_pages;
#[cfg(feature = "tls")]
mod jwt;
mod limits;
mod listener;
mod memory;
mod open_files;
mod rate;
mod refusal_log;
mod shares;
mod socket;
pub mod tls;
mod tokens;
mod turn;
mod turns;
mod workers;

pub use answer_body::AnswerBody;
pub use authorization::Authorization;
pub use backoff::{Backoff, Delays, random};
pub use connection::{Connection, ConnectionLimits, HttpService, Protocol};
pub use file::{open_file, read_file, read_file_within};
pub use http_client::{HttpClient, HttpError, with_causes};
pub use http_pool::HttpPool;
pub use huge_pages::disable_huge_pages;
#[cfg(feature = "tls")]
pub use jwt::{JwksError, JwtOptions, JwtVerifier};
pub use limits::{Limit, LimitHits};
pub use listener::Listener;
pub use memory::available_memory;
pub use open_files::{max_open_files, raise_open_files};
pub use rate::{Bucket, Rate};
pub use shares::Shares;
pub use socket::{ListenAddress, Stream};
pub use tokens::{Tokens, TokensError};
pub use workers::{OwnThread, Workers};
