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

impl Limit {
    const ALL: [Self; 3] = [Self::ConfigSize, Self::Sessions, Self::SessionBytes];

    /// Returns its name: the flag, if there is one.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigSize => "max-config-size",
            Self::Sessions => "max-sessions",
            Self::SessionBytes => "memory-limit",
        }
    }
}

/// The number of refusals by limit.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; Limit::ALL.len()]);

impl Refusals {
    pub(crate) fn count(&self, limit: Limit) {
        self.0[limit as usize].fetch_add(1, Relaxed);
    }

    /// Returns the refusals by the name of the limit.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Limit::ALL.into_iter().map(|limit| (limit.name(), self.0[limit as usize].load(Relaxed)))
    }
}
