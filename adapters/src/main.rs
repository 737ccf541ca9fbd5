//! The server with all adapters that come with it.

use mixer_adapters::*;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mixer_adapter::main!(
    #[cfg(feature = "authzen")] authzen::AuthZen, denier::Denier, #[cfg(feature = "extauthz")] extauthz::ExtAuthz, list::List,
    memquota::MemQuota, noop::Noop, #[cfg(feature = "otlp")] otlp::Otlp, prometheus::Prometheus,
    #[cfg(feature = "redisquota")] redisquota::RedisQuota, stdio::Stdio;
    sample = include_str!("../config/sample.yaml"), tour = include_str!("../tour.yaml")
);
