//! The server with all adapters that come with it.

#[cfg(feature = "authzen")]
use mixer_adapters::authzen::AuthZen;
#[cfg(feature = "extauthz")]
use mixer_adapters::extauthz::ExtAuthz;
#[cfg(feature = "otlp")]
use mixer_adapters::otlp::Otlp;
#[cfg(feature = "redisquota")]
use mixer_adapters::redisquota::RedisQuota;
use mixer_adapters::{
    denier::Denier, list::List, memquota::MemQuota, noop::Noop, prometheus::Prometheus, stdio::Stdio,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mixer_adapter::main!(
    #[cfg(feature = "authzen")] AuthZen, Denier, #[cfg(feature = "extauthz")] ExtAuthz, List, MemQuota, Noop, #[cfg(feature = "otlp")] Otlp, Prometheus, #[cfg(feature = "redisquota")] RedisQuota, Stdio;
    sample = include_str!("../config/sample.yaml"), tour = include_str!("../tour.yaml")
);
