//! The server with all adapters that come with it.

use mixer_adapters::{denier::Denier, memquota::MemQuota, stdio::Stdio};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mixer_adapter::main!(Denier, MemQuota, Stdio);
