use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The readiness of a server: it is ready when every registered task has dropped its [`Pending`].
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    pending: Arc<Mutex<BTreeSet<String>>>,
}

/// A task that is awaited; the server is not ready until this is dropped.
#[derive(Debug)]
pub struct Pending {
    task: String,
    readiness: Readiness,
}

impl Readiness {
    /// Registers a task; the server is not ready until the result is dropped.
    #[must_use]
    pub fn register(&self, task: impl Into<String>) -> Pending {
        let task = task.into();
        self.lock().insert(task.clone());
        Pending { task, readiness: self.clone() }
    }

    /// Returns the tasks that are still awaited; none when the server is ready.
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
        tracing::debug!(task = self.task, awaited = ?pending, "task ready");
    }
}
