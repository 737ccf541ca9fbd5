//! Counts of adapters that are shown on the metrics page.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Counts something that an adapter wants to be seen on the metrics page: what it dropped, refused or could not fetch.
///
/// It is `adapter_events_total{adapter, event}`, one count a process however many handlers there are, so that it never
/// goes back when a handler closes. Ask for it once, when a handler is opened.
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

/// A count of events; clones count together.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<AtomicU64>);

impl Events {
    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counts of all events so far, each with its adapter and its event.
pub fn event_counts() -> Vec<(&'static str, &'static str, u64)> {
    let known = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    known.iter().map(|((adapter, event), count)| (*adapter, *event, count.count())).collect()
}

static EVENTS: Mutex<BTreeMap<(&'static str, &'static str), Events>> = Mutex::new(BTreeMap::new());
