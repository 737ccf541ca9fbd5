use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use parking_lot::RwLock;

use super::{Counts, RequestLimits, Shadow, Snapshot, decision_log::DecisionLog};

/// The engine: the current snapshot and the counters of request outcomes.
#[derive(Debug, Default)]
pub struct Mixer {
    current: RwLock<Option<Arc<Snapshot>>>,
    counts: Counts,
    limits: RequestLimits,
    decision_log: Arc<DecisionLog>,
    shadow: Shadow,
    shadow_configuration: Option<Arc<Self>>,
    closed: AtomicBool,
}

impl Mixer {
    /// Creates an engine without a configuration.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the limits on single calls.
    #[must_use]
    pub fn with_limits(self, limits: RequestLimits) -> Self {
        Self { limits, ..self }
    }

    /// The limits on single calls.
    pub fn limits(&self) -> &RequestLimits {
        &self.limits
    }

    /// Sets the log of decisions, which by default has no output.
    #[must_use]
    pub fn with_decision_log(self, log: DecisionLog) -> Self {
        Self { decision_log: Arc::new(log), ..self }
    }

    /// The log of decisions.
    pub fn decision_log(&self) -> &Arc<DecisionLog> {
        &self.decision_log
    }

    /// Sets the limits of evaluations in the shadow, and the engine whose configuration is evaluated there, built with
    /// [`is_shadow`](crate::build::BuildOptions::is_shadow).
    #[must_use]
    pub fn with_shadow(self, shadow: Shadow, configuration: Option<Arc<Self>>) -> Self {
        Self { shadow, shadow_configuration: configuration, ..self }
    }

    /// The evaluations in the shadow.
    pub fn shadow(&self) -> &Shadow {
        &self.shadow
    }

    /// The engine with the second configuration.
    pub fn shadow_configuration(&self) -> Option<&Arc<Self>> {
        self.shadow_configuration.as_ref()
    }

    /// The counters of request outcomes.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the current snapshot; `None` before the first configuration. A request uses the same one from start to end.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.current.read().clone()
    }

    /// Replaces the current snapshot. Handlers that are not carried over are closed after the old snapshot's last in-flight
    /// request.
    pub fn replace(&self, snapshot: Snapshot) {
        self.update(|closed| (!closed).then(|| Arc::new(snapshot)));
    }

    /// Drops the snapshot with its handlers, and ignores further snapshots.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        self.update(|_| None);
        if let Some(configuration) = &self.shadow_configuration {
            configuration.close();
        }
    }

    fn update(&self, snapshot: impl FnOnce(bool) -> Option<Arc<Snapshot>>) {
        let mut current = self.current.write();
        let previous = std::mem::replace(&mut *current, snapshot(self.closed.load(SeqCst)));
        drop(current);
        // Without the lock, because it may close handlers.
        if let Some(previous) = previous {
            // Requests in progress may hold it for a while.
            previous.clear_caches();
        }
    }
}
