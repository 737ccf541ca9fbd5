use std::{collections::BTreeSet, fmt, sync::Arc};

use parking_lot::Mutex;

/// The readiness of a server: it is ready when every registered task has dropped its [`Pending`], and no condition awaits anything.
#[derive(Clone, Default)]
pub struct Readiness {
    pending: Arc<Mutex<BTreeSet<String>>>,
    conditions: Arc<Mutex<Vec<Condition>>>,
    warnings: Arc<Mutex<Vec<Condition>>>,
}

/// Returns conditions that do not hold yet, or warnings.
type Condition = Box<dyn Fn() -> Vec<String> + Send>;

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("pending", &self.pending()).finish_non_exhaustive()
    }
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
        self.pending.lock().insert(task.clone());
        Pending { task, readiness: self.clone() }
    }

    /// Adds a condition: the server is ready only while it returns nothing that is awaited.
    pub fn require(&self, condition: impl Fn() -> Vec<String> + Send + 'static) {
        self.conditions.lock().push(Box::new(condition));
    }

    /// Adds a source of warnings, which do not affect readiness.
    pub fn warn(&self, warnings: impl Fn() -> Vec<String> + Send + 'static) {
        self.warnings.lock().push(Box::new(warnings));
    }

    /// Returns the current warnings.
    pub fn warnings(&self) -> Vec<String> {
        let warnings = self.warnings.lock();
        warnings.iter().flat_map(|warnings| warnings()).collect()
    }

    /// Returns the conditions that do not hold yet; none when the server is ready.
    pub fn pending(&self) -> Vec<String> {
        let mut pending: Vec<String> = self.pending.lock().iter().cloned().collect();
        let conditions = self.conditions.lock();
        pending.extend(conditions.iter().flat_map(|condition| condition()));
        pending
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut pending = self.readiness.pending.lock();
        pending.remove(&self.task);
        tracing::debug!(task = self.task, awaited = ?pending, "task ready");
    }
}
