//! The server: the gRPC port with all services, and the admin port.
//!
//! The services are thin: decode, call the [`Host`](mixer_adapter_host::Host), encode. [`Bound::run_with_layer`] has an example of a
//! server within another program.

mod additional;
mod admin;
mod backend;
mod decisions;
mod engine_metrics;
#[cfg(feature = "envoy")]
mod envoy;
#[cfg(feature = "envoy")]
mod envoy_metrics;
mod expiry;
mod explain;
mod exposition;
mod grpc;
mod host_metrics;
mod limits;
mod metrics_encoder;
pub mod mixer;
pub(crate) mod page;
mod process_metrics;
mod readiness;
#[cfg(feature = "redis")]
mod redis_sessions;
mod rpc;
mod server;
mod server_options;
mod service_list;

pub use admin::AdminSecurity;
pub(crate) use admin::{serve as serve_admin, vitals};
pub(crate) use backend::{CLOSE_SESSION, CREATE_SESSION, VALIDATE, session_config};
pub(crate) use grpc::local_services;
pub use grpc::{GrpcService, HostMethod, HostMethods, adapter_services};
pub(crate) use host_metrics::add_limits;
pub(crate) use metrics_encoder::{Families, Scraped};
pub use mixer_adapter_net::{Authorization, ListenAddress, Tokens, TokensError, Workers};
#[cfg(feature = "tls")]
pub use mixer_adapter_net::{JwksError, JwtOptions, JwtVerifier};
pub(crate) use process_metrics::encode as encode_process;
pub use readiness::{Pending, Readiness};
#[cfg(feature = "redis")]
pub(crate) use redis_sessions::RedisSessions;
pub use server::{Bound, Server, ServerError};
pub use server_options::ServerOptions;
pub(crate) use service_list::{SERVICE_GROUPS, reflection, service_group};
