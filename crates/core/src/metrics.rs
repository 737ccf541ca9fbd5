//! Counters of adapters on the metrics page.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Returns the counter `mixer_adapter_events_total{adapter, event}`, for events such as things dropped, refused or not fetched.
///
/// The process has one counter for each adapter and event. All handlers share it, so that it does not decrease when a
/// handler closes. Call this once, in [`Adapter::open`](crate::Adapter::open).
///
/// ```
/// let lost = mixer_adapter_core::metrics::events("stdio", "lines_lost");
/// lost.add(3);
/// assert_eq!(mixer_adapter_core::metrics::events("stdio", "lines_lost").count(), 3);
/// ```
pub fn events(adapter: &'static str, event: &'static str) -> Events {
    let mut known = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry((adapter, event)).or_default().clone()
}

/// A counter of events. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<AtomicU64>);

impl Events {
    /// Adds to the counter.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// Returns the count since the start of the process.
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Returns the counters of all adapters: adapter, event, count.
#[doc(hidden)]
pub fn event_counts() -> Vec<(&'static str, &'static str, u64)> {
    let known = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    known.iter().map(|((adapter, event), count)| (*adapter, *event, count.count())).collect()
}

static EVENTS: Mutex<BTreeMap<(&'static str, &'static str), Events>> = Mutex::new(BTreeMap::new());
