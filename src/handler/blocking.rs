use std::{future::Future, sync::Arc};

use tokio::{runtime::Handle, sync::Semaphore, task::JoinError};

/// How many threads one blocking adapter may hold at a time.
const THREADS: usize = 64;

/// The threads of an adapter whose calls block. Each adapter has its own number of them, so that one that stalls leaves
/// the threads of the others alone.
#[derive(Clone)]
pub(crate) struct BlockingThreads {
    runtime: Handle,
    free: Arc<Semaphore>,
}

impl BlockingThreads {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, free: Arc::new(Semaphore::new(THREADS)) }
    }

    /// Runs a future to its end on a thread of its own, waiting for one that is free. Whoever stops waiting leaves the
    /// thread running until the call returns: a blocked thread cannot be stopped.
    pub(crate) async fn run<F>(&self, work: F) -> Result<F::Output, JoinError>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        // The semaphore is never closed, so that there always is a permit to wait for.
        let permit = self.free.clone().acquire_owned().await.ok();
        let runtime = self.runtime.clone();
        self.runtime
            .spawn_blocking(move || {
                let output = runtime.block_on(work);
                drop(permit);
                output
            })
            .await
    }
}
