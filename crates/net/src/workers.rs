use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::runtime::{Builder, Handle};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

/// The threads that serve connections, each with a runtime of its own.
///
/// A current-thread runtime costs about half the CPU of a
/// shared one per request (docs/behaviour/libraries.md#runtimes), and a call that blocks one thread does not stop the others.
#[derive(Clone, Debug)]
pub struct Workers {
    workers: Arc<[Worker]>,
    _stop: Option<Arc<DropGuard>>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

impl Workers {
    /// Starts `threads` threads, at least one. They end when the last clone is dropped.
    ///
    /// # Errors
    /// A runtime or a thread that the system does not provide.
    pub fn start(threads: usize) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let mut workers = Vec::with_capacity(threads);
        for index in 0..threads.max(1) {
            let runtime = start_thread(format!("calls-{index}"), stop.clone())?;
            workers.push(Worker { runtime, connections: Arc::default() });
        }
        Ok(Self { workers: workers.into(), _stop: Some(Arc::new(stop.drop_guard())) })
    }

    /// Serves connections on the caller's runtime: for tests and for servers inside another program.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn here() -> Self {
        let worker = Worker { runtime: Handle::current(), connections: Arc::default() };
        Self { workers: [worker].into(), _stop: None }
    }

    /// Runs a connection on the thread that has the fewest.
    pub(crate) fn spawn<F>(&self, tracker: &TaskTracker, connection: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(worker) = self.workers.iter().min_by_key(|worker| worker.connections.load(Relaxed)) else {
            return;
        };
        let open = OpenConnection::count(worker.connections.clone());
        tracker.spawn_on(
            async move {
                let _open = open;
                connection().await;
            },
            &worker.runtime,
        );
    }
}

/// A thread with a runtime of its own, for what must go on while all other threads are busy. It ends when this is dropped.
#[derive(Debug)]
pub struct OwnThread {
    runtime: Handle,
    _stop: DropGuard,
}

impl OwnThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// A runtime or a thread that the system does not provide.
    pub fn start(name: &str) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let runtime = start_thread(name.to_owned(), stop.clone())?;
        Ok(Self { runtime, _stop: stop.drop_guard() })
    }

    /// Returns the runtime of the thread.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

/// Starts a thread that runs a current-thread runtime until `stop` is cancelled.
fn start_thread(name: String, stop: CancellationToken) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new().name(name).spawn(move || {
        runtime.block_on(stop.cancelled());
        // Work that blocks must not hold the thread up.
        runtime.shutdown_background();
    })?;
    Ok(handle)
}

/// Counts a connection until it is dropped.
struct OpenConnection(Arc<AtomicUsize>);

impl OpenConnection {
    fn count(counter: Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Relaxed);
        Self(counter)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
