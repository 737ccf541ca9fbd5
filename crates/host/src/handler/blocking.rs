//! Threads for adapters that block, and for opening handlers of any adapter.

use std::sync::Arc;

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};

use super::opening_queue::{Opening, OpeningQueue};

/// The maximum number of threads of one blocking adapter.
const THREADS: usize = 64;

/// The threads of one blocking adapter. Each adapter has its own limit, so that an adapter that stalls does not take the
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

    /// Runs a future on a separate thread, after waiting for a free one. Returns `None` if the server shuts down first.
    ///
    /// When the caller is dropped, the future ends at its next `.await`; a blocked thread cannot be stopped.
    pub(crate) async fn run<F>(&self, work: F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.wait().await?.run(work).await
    }

    /// Waits for a free thread.
    async fn wait(&self) -> Option<FreeThread> {
        // The semaphore is never closed, so acquiring a permit does not fail.
        let permit = self.free.clone().acquire_owned().await.ok()?;
        Some(FreeThread { runtime: self.runtime.clone(), taken: Taken::Thread(permit) })
    }
}

/// A thread that is reserved until this is dropped.
pub(crate) struct FreeThread {
    runtime: Handle,
    taken: Taken,
}

/// Returns a thread when it is dropped.
enum Taken {
    Thread(#[allow(dead_code, reason = "it is dropped")] OwnedSemaphorePermit),
    Opening(#[allow(dead_code, reason = "it is dropped")] Opening),
}

impl FreeThread {
    /// Runs a future on the thread. Returns `None` if the server shuts down first.
    ///
    /// When the caller is dropped, the future ends at its next `.await`; a blocked thread cannot be stopped.
    pub(crate) async fn run<F>(self, work: F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let Self { runtime, taken } = self;
        let (mut done, output) = oneshot::channel();
        let here = runtime.clone();
        let thread = runtime.spawn_blocking(move || {
            here.block_on(async {
                tokio::select! {
                    biased;
                    () = done.closed() => {}
                    output = work => {
                        let _ = done.send(output);
                    }
                }
            });
        });
        // A blocked thread counts longer than its caller waits, and until the runtime can use it again: it would start another one.
        runtime.spawn(async move {
            let _ended = thread.await;
            drop(taken);
        });
        output.await.ok()
    }
}

/// The maximum number of handlers of one adapter that are opened or validated at a time for the configuration of the server.
const OPENING: usize = 16;

/// The same for calls and sessions. Some adapters compute while they open, on a processor that other calls need, and the allocator holds on
/// to some of the memory of each thread.
const OPENING_IN_CALLS: usize = 4;

/// For whom a handler is opened, or a configuration validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    /// The configuration of the server.
    Configuration,
    /// A call or a session on this connection.
    Connection(u64),
}

/// The threads on which handlers of one adapter are opened and configurations validated: never the
/// threads of calls, the admin port or signals, because an adapter may block there, or compute for long.
///
/// The configuration of the server has separate threads. Connections take turns for the threads of calls, by the time that their
/// openings took.
#[derive(Clone)]
pub(crate) struct OpeningThreads {
    runtime: Handle,
    configuration: BlockingThreads,
    calls: OpeningQueue,
}

impl OpeningThreads {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self {
            configuration: BlockingThreads::limited(runtime.clone(), OPENING),
            calls: OpeningQueue::new(OPENING_IN_CALLS),
            runtime,
        }
    }

    /// Waits for a free thread. Cancel safe.
    pub(crate) async fn wait(&self, opener: Opener) -> Option<FreeThread> {
        let Opener::Connection(connection) = opener else {
            return self.configuration.wait().await;
        };
        let opening = self.calls.wait(connection).await?;
        Some(FreeThread { runtime: self.runtime.clone(), taken: Taken::Opening(opening) })
    }
}

pub(crate) const SHUTTING_DOWN: &str = "the server is shutting down";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Begins an opening that ends with `release`, and reports that it runs.
    fn open(opening: &OpeningThreads, opener: Opener, running: &Arc<Semaphore>, release: &Arc<Semaphore>) {
        let (opening, running, release) = (opening.clone(), running.clone(), release.clone());
        tokio::spawn(async move {
            let thread = opening.wait(opener).await.unwrap();
            let work = async move {
                running.add_permits(1);
                drop(release.acquire().await);
            };
            thread.run(work).await
        });
    }

    #[tokio::test]
    async fn calls_that_open_handlers_do_not_delay_the_configuration_or_each_other() {
        let opening = OpeningThreads::new(Handle::current());
        let (running, release) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        for _ in 0..100 {
            open(&opening, Opener::Connection(1), &running, &release);
        }
        running.acquire().await.unwrap().forget();
        // The first connection has one of the threads.
        for connection in 2..=OPENING_IN_CALLS as u64 {
            open(&opening, Opener::Connection(connection), &running, &release);
            running.acquire().await.unwrap().forget();
        }
        for _ in 0..OPENING {
            open(&opening, Opener::Configuration, &running, &release);
            running.acquire().await.unwrap().forget();
        }
        assert_eq!(running.available_permits(), 0, "99 openings of the first connection wait");
        release.add_permits(1);
        running.acquire().await.unwrap().forget();
        release.add_permits(1_000);
    }

    #[tokio::test]
    async fn an_opening_that_nobody_waits_for_takes_no_thread() {
        let opening = OpeningThreads::new(Handle::current());
        let first = opening.wait(Opener::Connection(1)).await.unwrap();
        let second = tokio::spawn({
            let opening = opening.clone();
            async move { opening.wait(Opener::Connection(1)).await.is_some() }
        });
        tokio::task::yield_now().await;
        second.abort();
        drop(first);
        let mut taken = Vec::new();
        for connection in 1..=OPENING_IN_CALLS as u64 {
            taken.push(opening.wait(Opener::Connection(connection)).await.unwrap());
        }
    }
}
