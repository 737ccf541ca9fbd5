//! Threads for adapters that block.

use std::sync::Arc;

use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
};

/// The maximum number of threads of one blocking adapter.
const THREADS: usize = 64;

/// The threads of one blocking adapter. Each adapter has a limit of its own, so that one that stalls does not take the
/// threads of the others.
#[derive(Clone)]
pub(crate) struct BlockingThreads {
    runtime: Handle,
    free: Arc<Semaphore>,
}

impl BlockingThreads {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, free: Arc::new(Semaphore::new(THREADS)) }
    }

    /// Runs a future on a thread of its own, after waiting for a free one. Returns `None` if the server shuts down first.
    ///
    /// When the caller is dropped, the future ends at its next `.await`; a blocked thread cannot be stopped.
    pub(crate) async fn run<F>(&self, work: F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        // The semaphore is never closed, so acquiring a permit does not fail.
        let permit = self.free.clone().acquire_owned().await.ok();
        let runtime = self.runtime.clone();
        let (mut done, output) = oneshot::channel();
        self.runtime.spawn_blocking(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = done.closed() => {}
                    output = work => {
                        let _ = done.send(output);
                    }
                }
            });
            drop(permit);
        });
        output.await.ok()
    }
}
