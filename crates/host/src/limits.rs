//! Limits on the state that calls and sessions leave.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A limit that refuses calls and sessions with RESOURCE_EXHAUSTED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The size of one configuration.
    ConfigSize,
    /// The number of sessions.
    Sessions,
    /// The memory of all sessions.
    SessionBytes,
}

/// The names of the limits, in their order.
const NAMES: [&str; 3] = ["max-config-size", "max-sessions", "memory-limit"];

impl Limit {
    /// Returns its name: the flag, if there is one.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// The number of refusals by limit.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; NAMES.len()]);

impl Refusals {
    pub(crate) fn count(&self, limit: Limit) {
        self.0[limit as usize].fetch_add(1, Relaxed);
    }

    /// Returns the refusals by the name of the limit.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(&self.0).map(|(name, count)| (name, count.load(Relaxed)))
    }
}
