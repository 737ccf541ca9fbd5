//! What one connection does in its turn: it reads a little, and runs the calls that came.

use std::{
    io,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Instant,
};

use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use hyper::rt::Executor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{turns::LENGTH, workers::WorkerRef};

/// Bytes that all connections of a thread read in one round of turns, as far as each may read [`LEAST`].
const ROUND: usize = 64 << 10;

/// The least that a connection reads in a turn: some seven small calls.
const LEAST: usize = 1 << 10;

/// The most that a connection reads in a turn.
const MOST: usize = 16 << 10;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks of a connection, which its turns run, and how much it may read in this turn.
#[derive(Clone, Default)]
pub(crate) struct Turn(Arc<State>);

#[derive(Default)]
struct State {
    spawned: Mutex<Vec<Task>>,
    may_read: AtomicUsize,
}

impl State {
    fn spawned(&self) -> MutexGuard<'_, Vec<Task>> {
        self.spawned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Turn {
    fn execute(&self, task: F) {
        self.0.spawned().push(Box::pin(task));
    }
}

impl Turn {
    /// Serves a connection, and runs its tasks until it has ended.
    pub(crate) async fn serve(self, connection: impl Future<Output = ()>, worker: Option<&WorkerRef>) {
        let mut connection = pin!(connection);
        let mut tasks = FuturesUnordered::new();
        // Whether the last turn ended before all that could go on did.
        let mut are_ready = false;
        std::future::poll_fn(|context| {
            let waiting = worker.map_or(0, WorkerRef::waiting);
            // Nothing more is taken on before that.
            let may_read = if are_ready { 0 } else { (ROUND / (waiting + 1)).clamp(LEAST, MOST) };
            self.0.may_read.store(may_read, Relaxed);
            if connection.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            // A panic ends its task.
            tasks.extend(self.0.spawned().drain(..).map(|task| AssertUnwindSafe(task).catch_unwind()));
            let start = Instant::now();
            are_ready = false;
            while !are_ready && let Poll::Ready(Some(_)) = tasks.poll_next_unpin(context) {
                are_ready = start.elapsed() >= LENGTH;
            }
            if are_ready {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
    }

    /// Returns the stream of the connection, which reads as much in each turn as it may.
    pub(crate) fn stream<S>(&self, stream: S) -> TurnStream<S> {
        TurnStream { stream, turn: self.0.clone() }
    }
}

/// A stream that reads a limited number of bytes in each turn.
pub(crate) struct TurnStream<S> {
    stream: S,
    turn: Arc<State>,
}

impl<S: AsyncRead + Unpin> AsyncRead for TurnStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let may_read = self.turn.may_read.load(Relaxed);
        if may_read == 0 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        // Of its own, because `ReadBuf::take` needs unsafe code to note what it has read.
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(may_read.min(buffer.remaining())));
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        self.turn.may_read.store(may_read - read, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TurnStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, data)
    }
}
