use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::Cost;

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheOutcome {
    /// From the cache.
    Hit,
    /// By an evaluation of the rules.
    Miss,
    /// From the cache, after waiting for an equal request.
    Coalesced,
    /// From the cache by an expired answer, because a backend is down.
    Stale,
    /// By an evaluation of the rules without a lookup, which would cost as much.
    Bypassed,
}

impl CacheOutcome {
    /// The names of the outcomes by discriminant.
    pub const NAMES: [&str; 5] = ["hit", "miss", "coalesced", "stale", "bypassed"];

    /// The name of the outcome.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The counters of the caches of check answers.
#[derive(Debug, Default)]
pub struct CacheCounts {
    /// Requests, by [`CacheOutcome`].
    pub requests: [AtomicU64; CacheOutcome::NAMES.len()],
    /// Answers that were evicted because a cache was full.
    pub evictions: AtomicU64,
    /// Calls of adapters that were not made.
    pub saved_calls: AtomicU64,
    /// Evaluation time saved by hits, in microseconds.
    saved_micros: AtomicU64,
}

impl CacheCounts {
    pub(super) fn saved(&self, cost: Cost) {
        self.saved_calls.fetch_add(cost.calls.into(), Relaxed);
        self.saved_micros.fetch_add(u64::try_from(cost.took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn request(&self, outcome: CacheOutcome) {
        self.requests[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Evaluation time saved by hits.
    pub fn saved_time(&self) -> Duration {
        Duration::from_micros(self.saved_micros.load(Relaxed))
    }
}
