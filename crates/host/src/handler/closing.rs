use std::{future::Future, time::Duration};

use tokio::runtime::Handle;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

/// Where handlers are closed: a runtime that outlives those that serve calls, and a count of what is not closed yet.
#[derive(Clone, Debug)]
pub struct Closing {
    runtime: Handle,
    tasks: TaskTracker,
}

impl Closing {
    /// Closes handlers on that runtime.
    pub fn on(runtime: Handle) -> Self {
        Self { runtime, tasks: TaskTracker::new() }
    }

    /// The runtime that handlers are closed on.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Counts something as open until the result is dropped.
    pub(crate) fn opened(&self) -> TaskTrackerToken {
        self.tasks.token()
    }

    /// Closes one handler, in the background.
    pub fn spawn(&self, close: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_on(close, &self.runtime);
    }

    /// Waits until everything is closed, at most that long: also what calls still hold. Returns how many were not.
    pub async fn finish(&self, at_most: Duration) -> usize {
        self.tasks.close();
        // Time over is not an error here: the count says what was left.
        let _ = tokio::time::timeout(at_most, self.tasks.wait()).await;
        self.tasks.len()
    }
}
