//! Metrics of adapters on the metrics page.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The metrics of an adapter: [`Context::metrics`](crate::Context::metrics). All handlers of the adapter share them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    adapter: &'static str,
    events: Arc<EventCounts>,
}

/// The counters of all adapters of a server, by adapter and event.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct EventCounts(Mutex<BTreeMap<(&'static str, &'static str), Events>>);

/// A counter of events. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<AtomicU64>);

impl Metrics {
    /// Returns the metrics of one adapter.
    #[doc(hidden)]
    pub fn of(adapter: &'static str, events: Arc<EventCounts>) -> Self {
        Self { adapter, events }
    }

    /// Returns the counter `mixer_adapter_events_total{adapter, event}`, for events such as things dropped, refused or not fetched.
    ///
    /// All handlers of the adapter share it, so that it does not decrease when a handler closes.
    ///
    /// ```
    /// use mixer_adapter_core::Context;
    ///
    /// let context = Context::detached(());
    /// let lost = context.metrics().events("lines_lost");
    /// lost.add(3);
    /// assert_eq!(context.metrics().events("lines_lost").count(), 3);
    /// ```
    pub fn events(&self, event: &'static str) -> Events {
        let mut known = self.events.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry((self.adapter, event)).or_default().clone()
    }
}

impl EventCounts {
    /// Returns the counters of all adapters: adapter, event, count.
    pub fn counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|((adapter, event), count)| (*adapter, *event, count.count())).collect()
    }
}

impl Events {
    /// Adds to the counter.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// Returns the count since the start of the server.
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
