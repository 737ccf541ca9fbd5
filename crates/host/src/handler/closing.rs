//! Closing of handlers in the background.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

/// Closes handlers on a runtime that outlives the runtimes of calls, and counts the handlers that are still open.
#[derive(Clone, Debug)]
pub struct Closing {
    runtime: Handle,
    tasks: TaskTracker,
}

impl Closing {
    /// Closes handlers on a runtime.
    pub fn on(runtime: Handle) -> Self {
        Self { runtime, tasks: TaskTracker::new() }
    }

    /// Returns the runtime on which handlers are closed.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Counts a handler as open until the token is dropped.
    pub(crate) fn opened(&self) -> TaskTrackerToken {
        self.tasks.token()
    }

    /// Closes one handler in the background.
    pub fn spawn(&self, close: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_on(close, &self.runtime);
    }

    /// Waits up to `timeout` for all handlers, including those in use by calls, and returns how many are still open.
    pub async fn finish(&self, timeout: Duration) -> usize {
        self.tasks.close();
        // A timeout is not an error: the result is the number of open ones.
        let _ = tokio::time::timeout(timeout, self.tasks.wait()).await;
        self.tasks.len()
    }
}
