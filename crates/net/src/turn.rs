//! What one connection does in its turn: it reads a little, and runs the calls that came.

use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use hyper::rt::Executor;
use std::{
    io,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Instant,
};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};

use crate::{socket::Unread, turns::LENGTH, workers::WorkerRef};

/// Bytes that all connections of a thread read in one round of turns, divided among them; each may read [`LEAST`].
const ROUND: usize = 64 << 10;

/// The least that a connection reads at once: some seven small calls.
const LEAST: usize = 1 << 10;

/// The most that a connection reads at once.
const MOST: usize = 16 << 10;

/// When this many others wait for a turn, a connection that was idle shows first how much it has to do.
const MANY: usize = 16;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks of a connection, which its turns run, and how much it may read before they are run.
#[derive(Clone, Default)]
pub(crate) struct Turn(Arc<State>);

#[derive(Default)]
struct State {
    spawned: Mutex<Vec<Task>>,
    may_read: AtomicUsize,
    /// Bytes that may be there to read, at least 1; 0 after all was read.
    unread: AtomicUsize,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Turn {
    fn execute(&self, task: F) {
        self.0.spawned.lock().push(Box::pin(task));
    }
}

impl Turn {
    /// Serves a connection, and runs its tasks until it has ended.
    ///
    /// Beside many others, a connection that was idle is served at once only if it has little to read. A turn goes on until there is
    /// nothing to read and no task is ready, or until it has its length: then the worker knows how much more the connection has to do.
    pub(crate) async fn serve(self, connection: impl Future<Output = ()>, worker: Option<&WorkerRef>) {
        let mut connection = pin!(connection);
        let mut tasks = FuturesUnordered::new();
        // Whether the last turn ended before all tasks that could go on did.
        let mut are_ready = false;
        let mut was_idle = true;
        std::future::poll_fn(|context| {
            let waiting = worker.map_or(0, WorkerRef::waiting);
            let at_once = (ROUND / (waiting + 1)).clamp(LEAST, MOST);
            let mut only_looks = was_idle && waiting >= MANY;
            let start = Instant::now();
            let backlog = loop {
                // Nothing more is taken on while tasks are ready.
                self.0.may_read.store(if are_ready || only_looks { 0 } else { at_once }, Relaxed);
                self.0.unread.store(0, Relaxed);
                if connection.as_mut().poll(context).is_ready() {
                    return Poll::Ready(());
                }
                // A panic ends its task.
                tasks.extend(
                    self.0.spawned.lock().drain(..).map(|task| AssertUnwindSafe(task).catch_unwind()),
                );
                are_ready = false;
                while !are_ready && let Poll::Ready(Some(_)) = tasks.poll_next_unpin(context) {
                    are_ready = start.elapsed() >= LENGTH;
                }
                let unread = self.0.unread.load(Relaxed);
                if !are_ready && unread == 0 {
                    break 0;
                }
                if only_looks && unread > LEAST {
                    break unread;
                }
                only_looks = false;
                if start.elapsed() >= LENGTH {
                    break unread.max(1);
                }
            };
            was_idle = backlog == 0;
            if !was_idle {
                context.waker().wake_by_ref();
            }
            if let Some(worker) = worker {
                worker.set_backlog(backlog);
            }
            Poll::Pending
        })
        .await;
    }

    /// Returns the stream of the connection, which reads as much as it may.
    pub(crate) fn stream<S>(&self, stream: S) -> TurnStream<S> {
        TurnStream { inner: stream, turn: self.0.clone() }
    }
}

/// A stream that reads a limited number of bytes until tasks are run.
pub(crate) struct TurnStream<S> {
    /// The stream without the limit, for writing.
    pub(crate) inner: S,
    turn: Arc<State>,
}

impl<S: AsyncRead + Unread + Unpin> AsyncRead for TurnStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let may_read = self.turn.may_read.load(Relaxed);
        if may_read == 0 {
            // The turn reads again, or the next one does.
            self.turn.unread.store(self.inner.unread().max(1), Relaxed);
            return Poll::Pending;
        }
        // Separate, because `ReadBuf::take` needs unsafe code to advance the outer buffer.
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(may_read.min(buffer.remaining())));
        ready!(Pin::new(&mut self.inner).poll_read(context, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        self.turn.may_read.store(may_read - read, Relaxed);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::future::poll_immediate;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::Workers;

    const UNREAD: usize = 5;

    impl Unread for tokio::io::Join<&[u8], tokio::io::Sink> {
        fn unread(&self) -> usize {
            UNREAD
        }
    }

    impl Unread for tokio::io::DuplexStream {
        fn unread(&self) -> usize {
            UNREAD
        }
    }

    #[tokio::test]
    async fn a_turn_ends_while_there_is_more_to_read() {
        let worker = Workers::here().choose();
        let turn = Turn::default();
        let sent = vec![0; 64 << 20];
        let mut stream = turn.stream(tokio::io::join(&sent[..], tokio::io::sink()));
        let connection = async move { while let Ok(1..) = stream.read(&mut [0; 1_000]).await {} };
        assert!(poll_immediate(pin!(turn.serve(connection, Some(&worker)))).await.is_none());
        assert_eq!(worker.backlog(), UNREAD);
    }

    #[tokio::test]
    async fn a_turn_in_which_all_was_read_leaves_nothing() {
        let worker = Workers::here().choose();
        let (mut peer, stream) = tokio::io::duplex(1 << 20);
        peer.write_all(&[0; MOST]).await.unwrap();
        let turn = Turn::default();
        let (mut stream, spawner) = (turn.stream(stream), turn.clone());
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = ran.clone();
        let connection = async move {
            while let Ok(read @ 1..) = stream.read(&mut [0; 1_000]).await {
                let counted = counted.clone();
                spawner.execute(async move {
                    counted.fetch_add(read, Relaxed);
                });
            }
        };
        let mut serve = pin!(turn.serve(connection, Some(&worker)));
        while worker.backlog() > 0 || ran.load(Relaxed) == 0 {
            assert!(poll_immediate(serve.as_mut()).await.is_none());
        }
        assert_eq!(ran.load(Relaxed), MOST);
    }
}
