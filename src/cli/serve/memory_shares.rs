//! How the memory limit is divided (docs/operating/limits.md).

use mixer_adapter_net::{available_memory, grpc::FREE_BYTES};

/// The default of `--memory-limit`.
const DEFAULT_MEMORY: usize = 384 << 20;

/// The parts of the memory limit in bytes.
pub(super) struct MemoryShares {
    pub(super) calls: usize,
    /// Cached handlers.
    pub(super) handlers: usize,
    /// The state of closed handlers.
    pub(super) states: usize,
    pub(super) sessions: usize,
    /// Cached answers.
    pub(super) answers: usize,
    /// Fetched lists.
    pub(super) fetched: usize,
    /// Pushes of configuration, in addition to the limit.
    pub(super) pushes: usize,
    /// Connections, in addition to the limit.
    pub(super) connections: usize,
}

impl MemoryShares {
    /// Divides the limit; by default half of the machine's memory, at most 384 MiB. Small calls are part of the slots of calls.
    pub(super) fn new(limit: Option<usize>, max_calls: usize) -> Self {
        let limit = limit.unwrap_or_else(|| {
            let half = available_memory().and_then(|bytes| usize::try_from(bytes / 2).ok());
            half.map_or(DEFAULT_MEMORY, |half| DEFAULT_MEMORY.min(half))
        });
        let small = max_calls.saturating_mul(FREE_BYTES);
        Self {
            calls: (limit / 2).saturating_sub(small).max(limit / 8),
            handlers: limit / 8,
            states: limit / 24,
            sessions: limit / 6,
            answers: limit / 12,
            fetched: limit / 12,
            pushes: limit / 6,
            connections: limit / 4,
        }
    }
}
