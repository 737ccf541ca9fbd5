//! Writing in the background: each target has a queue of lines and a thread that writes them.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use tokio::{sync::watch, time::timeout};

use mixer_adapter_core::metrics::events;

use super::{file::Rotation, sink::Sink, target::Target};

/// The size of a queue, in bytes, from which lines are refused. It may be exceeded by the lines of one call.
const QUEUE_LIMIT: usize = 8 * 1024 * 1024;

/// The maximum number of targets, each of which has a thread.
const WRITERS: usize = 256;

/// How long closing a handler waits for its lines to be written.
const FLUSH: Duration = Duration::from_secs(10);

/// The minimum interval between warnings about lost lines.
const WARNING: Duration = Duration::from_secs(10);

/// Lines were lost.
#[derive(Debug, thiserror::Error)]
#[error("{lines} lines for {target} are lost: {reason}")]
pub(super) struct LostLinesError {
    lines: u64,
    target: Target,
    reason: String,
}

/// A target that cannot be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("{target} cannot be written: {reason}")]
    Unwritable { target: Target, reason: String },
    #[error("the maximum of {WRITERS} open files is reached")]
    TooMany,
}

/// The queues of the process: one for each target, so that handlers with the same target do not mix their lines, and a file
/// is rotated once.
static QUEUES: Mutex<BTreeMap<Target, Arc<Queue>>> = Mutex::new(BTreeMap::new());

/// A handler's access to its target. Writing does not block.
#[derive(Debug)]
pub(super) struct TargetWriter {
    queue: Arc<Queue>,
}

/// The queue between the handlers and the writer thread of a target.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) target: Target,
    state: Mutex<State>,
    /// Wakes the writer thread.
    work: Condvar,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// The number of bytes queued so far.
    queued: u64,
    handlers: usize,
    /// The writer thread has ended or is about to end without another look at the queue.
    gone: bool,
    rotation: Option<Rotation>,
    lost: u64,
    /// Lost lines that no call has reported yet.
    unreported: u64,
    /// Lost lines that have not been logged yet.
    unlogged: u64,
    warned: Option<Instant>,
    reason: String,
}

#[derive(Debug, Default)]
struct Progress {
    opened: Option<Result<(), OpenError>>,
    /// The number of bytes removed from the queue so far.
    written: u64,
}

impl TargetWriter {
    /// Opens a target, or shares it with other handlers. The most recent rotation applies to all.
    pub(super) async fn open(target: Target, rotation: Option<Rotation>) -> Result<Self, OpenError> {
        let writer = Self { queue: Queue::join(target, rotation)? };
        let mut progress = writer.queue.progress.subscribe();
        let opened = match progress.wait_for(|progress| progress.opened.is_some()).await {
            Ok(progress) => progress.opened.clone(),
            Err(_) => None,
        };
        match opened {
            Some(Err(error)) => Err(error),
            _ => Ok(writer),
        }
    }

    /// Queues lines.
    ///
    /// # Errors
    /// Lines were lost, these or earlier ones. Each lost line is reported once.
    pub(super) fn write(&self, lines: &[u8]) -> Result<(), LostLinesError> {
        let mut state = self.queue.state.lock();
        if state.waiting.len() < QUEUE_LIMIT {
            state.waiting.extend_from_slice(lines);
            state.queued += lines.len() as u64;
            self.queue.work.notify_one();
        } else {
            let reason = "lines arrive faster than they can be written";
            self.queue.lose(&mut state, count(lines), reason);
        }
        match std::mem::take(&mut state.unreported) {
            0 => Ok(()),
            lines => {
                Err(LostLinesError { lines, target: self.queue.target.clone(), reason: state.reason.clone() })
            }
        }
    }

    /// Returns the number of lines for this target that were lost since it was opened.
    pub(super) fn lost(&self) -> u64 {
        self.queue.state.lock().lost
    }

    /// Waits until all queued lines are written, and releases the target.
    pub(super) async fn close(self) {
        let queued = self.queue.state.lock().queued;
        let mut progress = self.queue.progress.subscribe();
        let written = progress.wait_for(|progress| progress.written >= queued);
        if timeout(FLUSH, written).await.is_err() {
            tracing::warn!(to = %self.queue.target, "lines are still queued after {FLUSH:?}");
        }
    }
}

impl Drop for TargetWriter {
    fn drop(&mut self) {
        self.queue.state.lock().handlers -= 1;
        self.queue.work.notify_one();
    }
}

impl Queue {
    /// Returns the queue of a target, and starts a writer thread if there is none.
    fn join(target: Target, rotation: Option<Rotation>) -> Result<Arc<Self>, OpenError> {
        let mut queues = QUEUES.lock();
        if let Some(queue) = queues.get(&target) {
            let mut state = queue.state.lock();
            if !state.gone {
                state.handlers += 1;
                state.rotation = rotation;
                drop(state);
                return Ok(queue.clone());
            }
        } else if queues.len() >= WRITERS {
            return Err(OpenError::TooMany);
        }
        let queue = Arc::new(Self {
            target: target.clone(),
            state: Mutex::new(State { handlers: 1, rotation, ..State::default() }),
            work: Condvar::new(),
            progress: watch::Sender::default(),
        });
        let shared = queue.clone();
        thread::Builder::new()
            .name("stdio".to_owned())
            .spawn(move || shared.run())
            .map_err(|error| OpenError::Unwritable { target: target.clone(), reason: error.to_string() })?;
        queues.insert(target, queue.clone());
        Ok(queue)
    }

    /// Opens the target and writes until there are no handlers and the queue is empty.
    fn run(self: Arc<Self>) {
        let rotation = self.state.lock().rotation;
        match Sink::open(&self.target, rotation) {
            Ok(sink) => {
                self.progress.send_modify(|progress| progress.opened = Some(Ok(())));
                self.write_all(sink);
            }
            Err(error) => {
                self.state.lock().gone = true;
                let error = OpenError::Unwritable { target: self.target.clone(), reason: error.to_string() };
                self.progress.send_modify(|progress| progress.opened = Some(Err(error)));
            }
        }
        let mut queues = QUEUES.lock();
        if queues.get(&self.target).is_some_and(|queue| Arc::ptr_eq(queue, &self)) {
            queues.remove(&self.target);
        }
    }

    fn write_all(&self, mut sink: Sink) {
        let mut lines = Vec::new();
        while let Some(rotation) = self.take(&mut lines) {
            if let Err((rest, error)) = sink.write(&lines, rotation) {
                self.lose(&mut self.state.lock(), count(rest), &error.to_string());
            }
            self.progress.send_modify(|progress| progress.written += lines.len() as u64);
        }
    }

    /// Waits for lines and takes all of them, with the current rotation; `None` if there will be no more.
    fn take(&self, lines: &mut Vec<u8>) -> Option<Option<Rotation>> {
        lines.clear();
        // Frees the memory of a burst.
        lines.shrink_to(QUEUE_LIMIT / 8);
        let mut state = self.state.lock();
        while state.waiting.is_empty() {
            if state.handlers == 0 {
                state.gone = true;
                self.warn(&mut state);
                return None;
            }
            self.work.wait(&mut state);
        }
        std::mem::swap(&mut state.waiting, lines);
        Some(state.rotation)
    }

    fn lose(&self, state: &mut State, lines: u64, reason: &str) {
        events("stdio", "lines_lost").add(lines);
        state.lost += lines;
        state.unreported += lines;
        state.unlogged += lines;
        reason.clone_into(&mut state.reason);
        if state.warned.is_none_or(|warned| warned.elapsed() >= WARNING) {
            state.warned = Some(Instant::now());
            self.warn(state);
        }
    }

    fn warn(&self, state: &mut State) {
        let lines = std::mem::take(&mut state.unlogged);
        if lines > 0 {
            tracing::warn!(to = %self.target, lines, reason = state.reason, "lines lost");
        }
    }
}

fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}
