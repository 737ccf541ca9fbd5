use std::{future::Future, sync::Arc};

use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
};

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

    /// Runs a future to its end on a thread of its own, waiting for one that is free; `None` when the server shuts down
    /// before it is done. Where nobody waits any more it ends at its next `.await`: a blocked thread cannot be stopped.
    pub(crate) async fn run<F>(&self, work: F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        // The semaphore is never closed, so that there always is a permit to wait for.
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
