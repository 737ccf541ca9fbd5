//! The server with all adapters that come with it.

use mixer_adapters::{denier::Denier, list::List, noop::Noop, prometheus::Prometheus};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mixer_adapter::main!(Denier, List, Noop, Prometheus);
