use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Whether the server can do its work yet: it can when every task that was registered has let go of its [`Pending`].
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    pending: Arc<Mutex<BTreeSet<String>>>,
}

/// Keeps the server from being ready until it is dropped.
#[derive(Debug)]
pub struct Pending {
    task: String,
    readiness: Readiness,
}

impl Readiness {
    /// The server is not ready until the result is dropped.
    #[must_use]
    pub fn register(&self, task: impl Into<String>) -> Pending {
        let task = task.into();
        self.lock().insert(task.clone());
        Pending { task, readiness: self.clone() }
    }

    /// What the server waits for; empty when it is ready.
    pub fn pending(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut pending = self.readiness.lock();
        pending.remove(&self.task);
        tracing::debug!(task = self.task, remaining = pending.len(), "done");
    }
}
