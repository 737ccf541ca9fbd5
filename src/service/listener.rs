use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{Builder, Handle},
    sync::Semaphore,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

/// The threads that serve calls, each with a runtime of its own: a current-thread runtime costs about half the CPU of a
/// shared one per request (docs/behaviour/libraries.md#runtimes), and what blocks one thread leaves the others and the admin port
/// alone.
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
    /// Starts so many threads; they end when the last clone of this is dropped.
    pub fn start(threads: usize) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let mut workers = Vec::with_capacity(threads);
        for index in 0..threads.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            workers.push(Worker { runtime: runtime.handle().clone(), connections: Arc::default() });
            let stop = stop.clone();
            std::thread::Builder::new()
                .name(format!("calls-{index}"))
                .spawn(move || runtime.block_on(stop.cancelled()))?;
        }
        Ok(Self { workers: workers.into(), _stop: Some(Arc::new(stop.drop_guard())) })
    }

    /// Serves calls on the runtime of the caller: for tests and for servers inside another program.
    pub fn here() -> Self {
        let worker = Worker { runtime: Handle::current(), connections: Arc::default() };
        Self { workers: [worker].into(), _stop: None }
    }

    /// Runs a connection on the thread that has fewest.
    fn spawn<F>(&self, tracker: &TaskTracker, connection: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(worker) = self.workers.iter().min_by_key(|worker| worker.connections.load(Relaxed)) else {
            return;
        };
        let open = Open::new(worker.connections.clone());
        tracker.spawn_on(
            async move {
                let _open = open;
                connection().await;
            },
            &worker.runtime,
        );
    }
}

struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// How long accepting rests after it failed: out of file descriptors, it would fail again at once.
const REST: Duration = Duration::from_millis(100);

/// Accepts connections until it is told to stop, at most so many at a time, each served by `serve` on one of the workers.
pub(super) async fn accept<F>(
    listener: TcpListener,
    workers: &Workers,
    at_most: usize,
    stop: CancellationToken,
    tracker: &TaskTracker,
    serve: impl Fn(TcpStream, u64) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let free = Arc::new(Semaphore::new(at_most.min(Semaphore::MAX_PERMITS)));
    let mut id = 0;
    loop {
        let permit = tokio::select! {
            permit = free.clone().acquire_owned() => permit,
            () = stop.cancelled() => return,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let stream = match accepted.and_then(|(stream, _)| {
            stream.set_nodelay(true)?;
            stream.into_std()
        }) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        id += 1;
        let serve = serve.clone();
        workers.spawn(tracker, move || async move {
            let _permit = permit;
            // Within the worker's runtime, where the stream is to be polled.
            match TcpStream::from_std(stream) {
                Ok(stream) => serve(stream, id).await,
                Err(error) => tracing::warn!(%error, "a connection could not be served"),
            }
        });
    }
}
