use std::sync::{Mutex, PoisonError};

use tokio::{runtime::Handle, task::JoinSet};
use tracing::Instrument as _;

use crate::locked::locked;

/// The tasks of a handler. `None` after the handler was closed.
#[doc(hidden)]
#[derive(Debug)]
pub struct Tasks {
    tasks: Mutex<Option<JoinSet<()>>>,
    /// Where they run; by default where they are spawned.
    runtime: Option<Handle>,
}

impl Drop for Tasks {
    /// Lets the tasks of a test go on; a server ends those of a handler before.
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.iter_mut().for_each(JoinSet::detach_all);
    }
}

impl Tasks {
    /// Runs tasks on `runtime`; without one, on the runtime of the caller of `spawn`.
    pub fn new(runtime: Option<Handle>) -> Self {
        Self { tasks: Mutex::new(Some(JoinSet::new())), runtime }
    }

    /// Starts a task, unless the handler is closed.
    pub(super) fn spawn(&self, adapter: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let task = task.instrument(tracing::info_span!("task", adapter));
        let mut tasks = locked(&self.tasks);
        let Some(tasks) = tasks.as_mut() else { return };
        while tasks.try_join_next().is_some() {}
        match &self.runtime {
            Some(runtime) => tasks.spawn_on(task, runtime),
            None => tasks.spawn(task),
        };
    }

    /// Returns whether no task runs.
    pub fn is_empty(&mut self) -> bool {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.as_ref().is_none_or(JoinSet::is_empty)
    }

    /// Aborts all tasks and starts no more.
    pub fn end(&self) {
        let tasks = locked(&self.tasks).take();
        // Dropped without the lock, because a task that is dropped may spawn.
        drop(tasks);
    }
}
