//! The adapters that come with mixer-adapter. Each is a crate in a folder beside `src/`.
//!
//! # Features
//!
//! * `authzen` (default): decisions of services with the AuthZEN Authorization API.
//! * `extauthz` (default): answers of external authorization services of Envoy, and of HTTP.
//! * `https` (default): lists from https:// providers.
//! * `otlp` (default): metrics, log entries and spans for OpenTelemetry collectors.
//! * `redisquota` (default): quotas and sessions that several servers share in Redis; it brings a client of Redis.
//! * `proto`: the command `proto`, which holds protos to a versioning policy; it brings a compiler of protos.

#[cfg(feature = "authzen")]
pub use mixer_adapter_authzen as authzen;
pub use mixer_adapter_denier as denier;
#[cfg(feature = "extauthz")]
pub use mixer_adapter_extauthz as extauthz;
pub use mixer_adapter_list as list;
pub use mixer_adapter_memquota as memquota;
pub use mixer_adapter_noop as noop;
#[cfg(feature = "otlp")]
pub use mixer_adapter_otlp as otlp;
pub use mixer_adapter_prometheus as prometheus;
#[cfg(feature = "redisquota")]
pub use mixer_adapter_redisquota as redisquota;
pub use mixer_adapter_stdio as stdio;
