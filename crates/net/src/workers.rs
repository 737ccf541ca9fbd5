use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    runtime::{Builder, Handle},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinError,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::{AbortOnDropHandle, TaskTracker},
};

use crate::turns::Turns;

/// The threads that serve connections, each with its own runtime.
///
/// A current-thread runtime costs about half the CPU of a
/// shared one per request (docs/behaviour/libraries.md#runtimes), and a call that blocks one thread does not stop the others.
///
/// The connections of a thread take turns. Calls run on the thread of their connection. While they occupy it for long, others run on idle threads. Large
/// calls run on as many separate threads, so that small ones do not wait for them.
#[derive(Clone, Debug)]
pub struct Workers {
    workers: Arc<[Worker]>,
    large: Arc<LargeThreads>,
    _stop: Option<Arc<DropGuard>>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    turns: Arc<Turns>,
    /// Each connection has a clone.
    connections: Arc<()>,
    /// Each connection that has not had its first turn has a clone.
    new: Arc<()>,
    load: Load,
    _giver: AbortOnDropHandle<Infallible>,
}

impl Worker {
    fn new(runtime: Handle) -> Self {
        let turns = Arc::<Turns>::default();
        let giver = AbortOnDropHandle::new(runtime.spawn(turns.giver()));
        let (connections, new, load) = Default::default();
        Self { runtime, turns, connections, new, load, _giver: giver }
    }
}

/// The threads for large calls.
#[derive(Debug)]
struct LargeThreads {
    free: Arc<Semaphore>,
    /// As many as there are permits.
    idle: Mutex<Vec<Handle>>,
}

/// A thread on which one large call begins.
struct LargeThread {
    threads: Arc<LargeThreads>,
    runtime: Handle,
    _permit: OwnedSemaphorePermit,
}

impl LargeThreads {
    fn new(threads: Vec<Handle>) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(threads.len())), idle: Mutex::new(threads) })
    }

    /// Waits for a free thread. Each connection has at most one call in the queue.
    async fn wait(self: &Arc<Self>, connection: Arc<Semaphore>) -> Option<LargeThread> {
        // Neither is ever closed, and a permit stands for an idle thread.
        let _first = connection.acquire_owned().await.ok()?;
        let permit = self.free.clone().acquire_owned().await.ok()?;
        let runtime = self.idle.lock().pop()?;
        Some(LargeThread { threads: self.clone(), runtime, _permit: permit })
    }
}

impl Drop for LargeThread {
    fn drop(&mut self) {
        let mut idle = self.threads.idle.lock();
        idle.push(self.runtime.clone());
    }
}

/// The load of a worker.
#[derive(Debug, Default)]
struct Load {
    /// Whether it runs a call now.
    runs: AtomicBool,
    /// Each call of another worker that it has to start has a clone.
    taken_over: Arc<()>,
    /// Moving average of the time for which calls on its connections occupy a thread, in microseconds.
    cost: AtomicU64,
}

impl Load {
    fn is_idle(&self) -> bool {
        !self.runs.load(Relaxed) && clones(&self.taken_over) == 0
    }
}

/// Workers are compared by their connections without a first turn, in multiples of this number.
const MANY_NEW: usize = 8;

/// Calls that occupy a thread for this time on average are worth moving to another one.
const COSTLY: Duration = Duration::from_micros(250);

impl Workers {
    /// Starts `threads` threads, at least one, and as many for large calls. They end when the last clone is dropped.
    ///
    /// # Errors
    /// A runtime or a thread that the system does not provide.
    pub fn start(threads: usize) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let (mut workers, mut large) = (Vec::with_capacity(threads), Vec::with_capacity(threads));
        for index in 0..threads.max(1) {
            workers.push(Worker::new(start_thread(format!("calls-{index}"), stop.clone())?));
            large.push(start_thread(format!("large-{index}"), stop.clone())?);
        }
        let (workers, large) = (workers.into(), LargeThreads::new(large));
        Ok(Self { workers, large, _stop: Some(Arc::new(stop.drop_guard())) })
    }

    /// Serves connections on the caller's runtime: for tests and for servers inside another program.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn here() -> Self {
        let runtime = Handle::current();
        let workers = (0..runtime.metrics().num_workers()).map(|_| Worker::new(runtime.clone())).collect();
        Self { workers, large: LargeThreads::new(vec![runtime]), _stop: None }
    }

    /// Returns the worker with the fewest connections. Workers with many connections that wait for their first turn come last: a blocked
    /// worker receives no more.
    pub(crate) fn choose(&self) -> WorkerRef {
        let ranks =
            self.workers.iter().map(|worker| (clones(&worker.new) / MANY_NEW, clones(&worker.connections)));
        let index = ranks.enumerate().min_by_key(|(_, rank)| *rank).map_or(0, |(index, _)| index);
        let backlog = Arc::default();
        WorkerRef { workers: self.workers.clone(), large: self.large.clone(), index, backlog }
    }
}

/// A thread of the [`Workers`], for one connection.
#[derive(Clone, Debug)]
pub(crate) struct WorkerRef {
    workers: Arc<[Worker]>,
    large: Arc<LargeThreads>,
    index: usize,
    /// How much the connection that was given this reference, or a clone, had to do when its turn ended.
    backlog: Arc<AtomicUsize>,
}

impl WorkerRef {
    fn load(&self) -> &Load {
        &self.workers[self.index].load
    }

    /// Runs a connection.
    pub(crate) fn spawn<F>(&self, tracker: &TaskTracker, connection: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let worker = &self.workers[self.index];
        let open = worker.connections.clone();
        let serve = async move {
            let _open = open;
            connection().await;
        };
        worker.turns.add(tracker.track_future(serve), self.backlog.clone());
    }

    /// Counts a connection without a first turn until the result is dropped.
    pub(crate) fn count_new(&self) -> Arc<()> {
        self.workers[self.index].new.clone()
    }

    /// Notes how many bytes the connection of this reference had still to read when its turn ended; 0 when it had nothing to do.
    pub(crate) fn set_backlog(&self, backlog: usize) {
        self.backlog.store(backlog, Relaxed);
    }

    /// Returns the last value of [`set_backlog`](Self::set_backlog).
    pub(crate) fn backlog(&self) -> usize {
        self.backlog.load(Relaxed)
    }

    /// Returns how many connections wait for their turns on this worker.
    pub(crate) fn waiting(&self) -> usize {
        self.workers[self.index].turns.length()
    }

    /// Runs a call on a connection of this worker: on its own thread, or on an idle one while calls occupy its own
    /// for long.
    ///
    /// # Errors
    /// A call on another thread that panics, or whose thread ends.
    pub(crate) async fn run<F>(&self, mut call: Pin<Box<F>>) -> Result<F::Output, JoinError>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        if self.workers.len() == 1 {
            return Ok(call.await);
        }
        let done = poll_fn(|context| match self.relief() {
            Some(relief) => Poll::Ready(Err(relief)),
            None => self.poll_measured(self.index, call.as_mut(), context).map(Ok),
        });
        match done.await {
            Ok(answer) => Ok(answer),
            Err(relief) => relief.take_over(call, self.index).await,
        }
    }

    /// Runs a large call of a connection on a thread for large calls. Each thread begins one at a time: most of the work is in the first
    /// poll. `connection` is the queue of the connection. The call ends when the future is dropped.
    ///
    /// # Errors
    /// A call that panics, or whose thread ends.
    pub(crate) async fn run_large<F>(
        &self,
        mut call: Pin<Box<F>>,
        connection: Arc<Semaphore>,
    ) -> Result<F::Output, JoinError>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let thread = self.large.wait(connection).await;
        let runtime = thread.as_ref().map_or(&self.workers[self.index].runtime, |thread| &thread.runtime);
        let running = runtime.clone().spawn(async move {
            let polled = poll_once(call.as_mut()).await;
            drop(thread);
            match polled {
                Poll::Ready(answer) => answer,
                Poll::Pending => call.await,
            }
        });
        AbortOnDropHandle::new(running).await
    }

    /// Polls a call on a connection of the worker `origin`, and measures how long it occupies this one.
    fn poll_measured<F: Future>(
        &self,
        origin: usize,
        call: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        let load = self.load();
        load.runs.store(true, Relaxed);
        let start = Instant::now();
        let polled = call.poll(context);
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        load.runs.store(false, Relaxed);
        // Two threads may overwrite each other's result, which the next one corrects.
        let cost = &self.workers[origin].load.cost;
        let average = cost.load(Relaxed);
        cost.store(average - average / 4 + micros / 4, Relaxed);
        polled
    }

    /// Returns another worker, which has nothing to do, if calls occupy this one for long.
    fn relief(&self) -> Option<Self> {
        if u128::from(self.load().cost.load(Relaxed)) < COSTLY.as_micros() {
            return None;
        }
        let idle = (0..self.workers.len())
            .find(|index| *index != self.index && self.workers[*index].load.is_idle())?;
        Some(Self { index: idle, ..self.clone() })
    }

    /// Runs a call on a connection of the worker `origin`. The call ends when the result is dropped.
    fn take_over<F>(self, mut call: Pin<Box<F>>, origin: usize) -> AbortOnDropHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let mut taken = Some(self.load().taken_over.clone());
        let runtime = self.workers[self.index].runtime.clone();
        AbortOnDropHandle::new(runtime.spawn(poll_fn(move |context| {
            let polled = self.poll_measured(origin, call.as_mut(), context);
            // What waits does not occupy the thread.
            drop(taken.take());
            polled
        })))
    }
}

/// Polls a future once.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// A thread with a runtime, for work that must go on while all other threads are busy. It ends when this is dropped.
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

/// Tasks, among them turns of connections, after which a thread looks whether anything has arrived.
const EVENT_INTERVAL: u32 = 8;

/// Starts a thread that runs a current-thread runtime until `stop` is cancelled.
fn start_thread(name: String, stop: CancellationToken) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new().name(name).spawn(move || {
        runtime.block_on(stop.cancelled());
        // Work that blocks must not hold the thread up.
        runtime.shutdown_background();
    })?;
    Ok(handle)
}

/// Returns the number of clones beside the counter itself.
fn clones(counter: &Arc<()>) -> usize {
    Arc::strong_count(counter) - 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use futures_util::future::join_all;

    use super::*;

    #[test]
    fn a_thread_that_is_blocked_receives_few_new_connections() {
        let workers = Workers::start(2).unwrap();
        let blocked = workers.choose();
        let new: Vec<_> = (0..MANY_NEW).map(|_| blocked.count_new()).collect();
        assert_ne!(workers.choose().index, blocked.index);
        drop(new);
        assert_eq!(workers.choose().index, blocked.index);
    }

    #[tokio::test]
    async fn connections_take_turns_to_begin_large_calls() {
        let worker = Workers::here().choose();
        let begun = Arc::new(Mutex::new(Vec::new()));
        let connections = [1, 2].map(|number| (number, Arc::new(Semaphore::new(1))));
        let calls = [0, 0, 0, 1].map(|index: usize| {
            let (number, queue) = connections[index].clone();
            let begun = begun.clone();
            worker.run_large(Box::pin(async move { begun.lock().push(number) }), queue)
        });
        for done in join_all(calls).await {
            assert!(done.is_ok());
        }
        // One of the first connection waits while its first one runs.
        assert_eq!(*begun.lock(), [1, 1, 2, 1]);
    }

    #[tokio::test]
    async fn large_calls_of_one_connection_run_on_all_threads_for_them() {
        let workers = Workers::start(2).unwrap();
        let (worker, queue) = (workers.choose(), Arc::new(Semaphore::new(1)));
        let ((send_a, receive_a), (send_b, receive_b)) = (sync_channel(1), sync_channel(1));
        let calls = [(send_a, receive_b), (send_b, receive_a)].map(|(send, receive)| {
            let meet = async move {
                send.send(()).unwrap();
                // Blocks the thread.
                receive.recv_timeout(Duration::from_secs(60)).is_ok()
            };
            worker.run_large(Box::pin(meet), queue.clone())
        });
        for met in join_all(calls).await {
            assert!(met.unwrap());
        }
    }
}
