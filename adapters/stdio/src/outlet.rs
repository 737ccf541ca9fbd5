use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::timeout};

use mixer_adapter_core::metrics::events;

use super::{file::Rotation, sink::Sink};

/// Lines are refused while so many bytes wait; what waits is never more than this and the lines of one call.
const ROOM: usize = 8 * 1024 * 1024;

/// The most streams and files that are written at a time: each has a thread.
const WRITERS: usize = 256;

/// How long a handler that closes waits for its lines to be written.
const FLUSH: Duration = Duration::from_secs(10);

/// How often lines that are lost are worth a warning.
const WARNING: Duration = Duration::from_secs(10);

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Stdout,
    Stderr,
    /// By its absolute path.
    File(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::Stderr => f.write_str("standard error"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Lines that were not written.
#[derive(Debug, thiserror::Error)]
#[error("{lines} lines for {target} are lost: {reason}")]
pub(super) struct Lost {
    lines: u64,
    target: Target,
    reason: String,
}

/// Why lines cannot be written at all.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("{target} cannot be written: {reason}")]
    Unwritable { target: Target, reason: String },
    #[error("{WRITERS} files are written already, which is the most")]
    TooMany,
}

/// The writers of the process: one for each target, so that handlers that share one never write into each other's
/// lines, and a rotated file is rotated once.
static QUEUES: Mutex<BTreeMap<Target, Arc<Queue>>> = Mutex::new(BTreeMap::new());

/// A handler's way to its target. Never blocks: a thread of the target writes.
#[derive(Debug)]
pub(super) struct Outlet {
    queue: Arc<Queue>,
}

/// What handlers and the writer of a target share.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) target: Target,
    state: Mutex<State>,
    /// Wakes the writer.
    work: Condvar,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// How many bytes ever came to wait.
    queued: u64,
    handlers: usize,
    /// The writer has gone, or is about to without looking here again.
    gone: bool,
    rotation: Option<Rotation>,
    lost: u64,
    /// Lost lines that no call has been told of.
    untold: u64,
    /// Lost lines that no warning has told of.
    unwarned: u64,
    warned: Option<Instant>,
    reason: String,
}

#[derive(Debug, Default)]
struct Progress {
    opened: Option<Result<(), OpenError>>,
    /// How many bytes waited and no longer do.
    written: u64,
}

impl Outlet {
    /// Opens a target, or joins the handlers that have it open; the rotation of the latest holds for all.
    pub(super) async fn open(target: Target, rotation: Option<Rotation>) -> Result<Self, OpenError> {
        let outlet = Self { queue: Queue::join(target, rotation)? };
        let mut progress = outlet.queue.progress.subscribe();
        let opened = match progress.wait_for(|progress| progress.opened.is_some()).await {
            Ok(progress) => progress.opened.clone(),
            Err(_) => None,
        };
        match opened {
            Some(Err(error)) => Err(error),
            _ => Ok(outlet),
        }
    }

    /// Hands lines to the writer. An error counts the lines that are lost, these or earlier ones, each told once.
    pub(super) fn write(&self, lines: &[u8]) -> Result<(), Lost> {
        let mut state = self.queue.lock();
        if state.waiting.len() < ROOM {
            state.waiting.extend_from_slice(lines);
            state.queued += lines.len() as u64;
            self.queue.work.notify_one();
        } else {
            let reason = "they come faster than they can be written";
            self.queue.lose(&mut state, count(lines), reason);
        }
        match std::mem::take(&mut state.untold) {
            0 => Ok(()),
            lines => Err(Lost { lines, target: self.queue.target.clone(), reason: state.reason.clone() }),
        }
    }

    /// How many lines for this target were lost since it was opened.
    pub(super) fn lost(&self) -> u64 {
        self.queue.lock().lost
    }

    /// Waits until all lines handed over are written, and lets go of the target.
    pub(super) async fn close(self) {
        let queued = self.queue.lock().queued;
        let mut progress = self.queue.progress.subscribe();
        let written = progress.wait_for(|progress| progress.written >= queued);
        if timeout(FLUSH, written).await.is_err() {
            tracing::warn!(to = %self.queue.target, "lines still wait to be written after {FLUSH:?}");
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.queue.lock().handlers -= 1;
        self.queue.work.notify_one();
    }
}

impl Queue {
    /// The queue of a target, with a writer.
    fn join(target: Target, rotation: Option<Rotation>) -> Result<Arc<Self>, OpenError> {
        let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(&target) {
            let mut state = queue.lock();
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

    /// Opens the target and writes until no handler is left and nothing waits.
    fn run(self: Arc<Self>) {
        let rotation = self.lock().rotation;
        match Sink::open(&self.target, rotation) {
            Ok(sink) => {
                self.progress.send_modify(|progress| progress.opened = Some(Ok(())));
                self.write_all(sink);
            }
            Err(error) => {
                self.lock().gone = true;
                let error = OpenError::Unwritable { target: self.target.clone(), reason: error.to_string() };
                self.progress.send_modify(|progress| progress.opened = Some(Err(error)));
            }
        }
        let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.get(&self.target).is_some_and(|queue| Arc::ptr_eq(queue, &self)) {
            queues.remove(&self.target);
        }
    }

    fn write_all(&self, mut sink: Sink) {
        let mut lines = Vec::new();
        while let Some(rotation) = self.take(&mut lines) {
            if let Err((rest, error)) = sink.write(&lines, rotation) {
                self.lose(&mut self.lock(), count(rest), &error.to_string());
            }
            self.progress.send_modify(|progress| progress.written += lines.len() as u64);
        }
    }

    /// Waits for lines and takes them all, with the rotation that holds; `None` when there will be no more.
    fn take(&self, lines: &mut Vec<u8>) -> Option<Option<Rotation>> {
        lines.clear();
        // What a burst took is given back.
        lines.shrink_to(ROOM / 8);
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.handlers == 0 {
                state.gone = true;
                self.warn(&mut state);
                return None;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut state.waiting, lines);
        Some(state.rotation)
    }

    fn lose(&self, state: &mut State, lines: u64, reason: &str) {
        events("stdio", "lines_lost").add(lines);
        state.lost += lines;
        state.untold += lines;
        state.unwarned += lines;
        reason.clone_into(&mut state.reason);
        if state.warned.is_none_or(|warned| warned.elapsed() >= WARNING) {
            state.warned = Some(Instant::now());
            self.warn(state);
        }
    }

    fn warn(&self, state: &mut State) {
        let lines = std::mem::take(&mut state.unwarned);
        if lines > 0 {
            tracing::warn!(to = %self.target, lines, reason = state.reason, "lines are lost");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}
