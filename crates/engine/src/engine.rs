use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use super::{Counts, Snapshot};

/// The engine: the snapshot that requests see now, and what became of requests.
#[derive(Debug)]
pub struct Mixer {
    current: RwLock<Option<Arc<Snapshot>>>,
    counts: Counts,
    closed: AtomicBool,
}

impl Mixer {
    /// An engine without configuration yet.
    pub fn new() -> Self {
        Self { current: RwLock::new(None), counts: Counts::default(), closed: AtomicBool::new(false) }
    }

    /// What became of requests.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What requests see now; nothing before the first configuration. A request keeps it to its end.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has requests from now on see another snapshot. Handlers of the former one that this one does not have are closed
    /// when its last request has ended.
    pub fn swap(&self, snapshot: Snapshot) {
        self.replace(|closed| (!closed).then(|| Arc::new(snapshot)));
    }

    /// Lets go of all handlers, as nothing is to be served any more. Snapshots that still come are not taken.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        self.replace(|_| None);
    }

    fn replace(&self, snapshot: impl FnOnce(bool) -> Option<Arc<Snapshot>>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let former = std::mem::replace(&mut *current, snapshot(self.closed.load(SeqCst)));
        drop(current);
        // Outside of the lock: dropping it may close handlers.
        drop(former);
    }
}

impl Default for Mixer {
    fn default() -> Self {
        Self::new()
    }
}
