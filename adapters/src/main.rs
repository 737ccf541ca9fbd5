//! The server with all adapters that come with it.

use mixer_adapters::{
    denier::Denier, list::List, memquota::MemQuota, noop::Noop, prometheus::Prometheus, stdio::Stdio,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mixer_adapter::main!(
    Denier, List, MemQuota, Noop, Prometheus, Stdio;
    sample = include_str!("../config/sample.yaml"), tour = include_str!("../tour.yaml")
);
