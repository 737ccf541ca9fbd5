//! Threads for adapters that block, and for opening handlers of any adapter.

use std::sync::Arc;

use mixer_adapter_core::adapter::AdapterError;
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
        Self::limited(runtime, THREADS)
    }

    fn limited(runtime: Handle, threads: usize) -> Self {
        Self { runtime, free: Arc::new(Semaphore::new(threads)) }
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

/// The maximum number of handlers of one adapter that are opened or validated at a time.
const OPENING: usize = 16;

/// The maximum number of configurations of one adapter that wait to be opened or validated.
const WAITING: usize = 1_024;

/// The threads on which handlers of one adapter are opened and configurations validated: never those that serve calls, the
/// admin port or signals, because an adapter may block there, or compute for long.
#[derive(Clone)]
pub(crate) struct OpeningThreads {
    threads: BlockingThreads,
    places: Arc<Semaphore>,
}

impl OpeningThreads {
    pub(crate) fn new(runtime: Handle) -> Self {
        let places = Arc::new(Semaphore::new(OPENING + WAITING));
        Self { threads: BlockingThreads::limited(runtime, OPENING), places }
    }

    /// Runs a future on a thread of its own. Those that wait for a thread are served in the order of their arrival.
    ///
    /// # Errors
    /// UNAVAILABLE if too many wait, or the server shuts down.
    pub(crate) async fn run<F>(&self, work: F) -> Result<F::Output, AdapterError>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let Ok(_place) = self.places.try_acquire() else {
            return Err(AdapterError::unavailable(format!(
                "{} of its configurations are being opened or wait for it; try again",
                OPENING + WAITING
            )));
        };
        self.threads.run(work).await.ok_or_else(|| AdapterError::unavailable(SHUTTING_DOWN))
    }
}

pub(crate) const SHUTTING_DOWN: &str = "the server is shutting down";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use mixer_adapter_core::adapter::Code;

    use super::*;

    #[tokio::test]
    async fn openings_beyond_those_that_may_wait_are_unavailable() {
        let opening = OpeningThreads::new(Handle::current());
        let release = Arc::new(Semaphore::new(0));
        let open = || {
            let (opening, release) = (opening.clone(), release.clone());
            tokio::spawn(async move { opening.run(async move { drop(release.acquire().await) }).await })
        };
        let waiting: Vec<_> = (0..OPENING + WAITING).map(|_| open()).collect();
        while opening.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(opening.run(async {}).await.unwrap_err().code(), Code::Unavailable);
        release.add_permits(OPENING + WAITING);
        for opened in waiting {
            assert!(opened.await.unwrap().is_ok());
        }
        assert!(opening.run(async {}).await.is_ok());
    }
}
