//! Writing in the background: each target has a queue of lines and a thread that writes them.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{OnceCell, Semaphore},
    task::spawn_blocking,
};

use mixer_adapter_core::{
    framework::{line_queue::LineQueue, log_limit::LogLimit},
    metrics::{Events, Metrics},
};

use super::{
    file::Rotation,
    sink::{SharedRotation, Sink},
    target::Target,
};

/// The maximum size of a queue in bytes, which only the lines of one call can exceed.
const QUEUE_LIMIT: usize = 8 * 1024 * 1024;

/// The maximum number of targets. Each has a thread.
const WRITERS: usize = 256;

/// How long closing a handler waits for its lines to be written.
const FLUSH: Duration = Duration::from_secs(10);

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

/// The open targets of all handlers. Handlers with the same target share its queue, so that their lines are whole and a file is
/// rotated once.
#[derive(Debug)]
pub(super) struct Targets {
    open: Mutex<BTreeMap<Target, Weak<SharedTarget>>>,
    /// A blocked thread outlasts the handlers of its target.
    free_threads: Arc<Semaphore>,
    lines_lost: Events,
}

/// A handler's access to its target. Writing does not block.
#[derive(Debug)]
pub(super) struct TargetWriter(Arc<SharedTarget>);

#[derive(Debug)]
struct SharedTarget {
    target: Target,
    rotation: SharedRotation,
    /// Empty until the target is open.
    lines: OnceCell<LineQueue>,
    /// The last error of the thread.
    error: Arc<Mutex<Option<io::Error>>>,
    /// Lost lines that were reported.
    reported: AtomicU64,
    lines_lost: Events,
    log_limit: LogLimit,
}

impl Targets {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let (open, free_threads) = (Mutex::default(), Arc::new(Semaphore::new(WRITERS)));
        Self { open, free_threads, lines_lost: metrics.events("lines_lost") }
    }

    /// Opens a target, or shares it with other handlers. The most recent rotation applies to all.
    pub(super) async fn open(
        &self,
        target: Target,
        rotation: Option<Rotation>,
    ) -> Result<TargetWriter, OpenError> {
        let shared = self.find_or_create(target);
        *shared.rotation.lock() = rotation;
        shared.lines.get_or_try_init(|| shared.start(&self.free_threads)).await?;
        Ok(TargetWriter(shared))
    }

    fn find_or_create(&self, target: Target) -> Arc<SharedTarget> {
        let mut targets = self.open.lock();
        targets.retain(|_, shared| shared.strong_count() > 0);
        let known = targets.get(&target).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let shared = Arc::new(SharedTarget {
                target: target.clone(),
                rotation: SharedRotation::default(),
                lines: OnceCell::new(),
                error: Arc::default(),
                reported: AtomicU64::new(0),
                lines_lost: self.lines_lost.clone(),
                log_limit: LogLimit::new(),
            });
            targets.insert(target, Arc::downgrade(&shared));
            shared
        })
    }
}

impl TargetWriter {
    /// Queues whole lines.
    ///
    /// # Errors
    /// Lines were lost, these or earlier ones. Each lost line is reported once.
    pub(super) fn write(&self, lines: Vec<u8>) -> Result<(), LostLinesError> {
        if let Some(queue) = self.0.lines.get() {
            queue.add(lines);
        }
        self.report_lost()
    }

    /// Returns the number of lines for this target that were lost since it was opened.
    pub(super) fn lost(&self) -> u64 {
        let counts = self.0.lines.get().map(LineQueue::counts);
        counts.map_or(0, |counts| counts.dropped.load(Relaxed) + counts.failed.load(Relaxed))
    }

    /// Waits until all queued lines are written, and releases the target.
    pub(super) async fn close(self) {
        let shared = self.0.clone();
        let flushed = spawn_blocking(move || shared.lines.get().is_none_or(|queue| queue.flush(FLUSH)));
        if !flushed.await.unwrap_or(false) {
            tracing::warn!(to = %self.0.target, "lines are still queued after {FLUSH:?}");
        }
        // No call is left to report them to.
        let _ = self.report_lost();
    }

    /// Counts and logs lines that were lost since the last report.
    fn report_lost(&self) -> Result<(), LostLinesError> {
        let lost = self.lost();
        let lines = lost.saturating_sub(self.0.reported.fetch_max(lost, Relaxed));
        if lines == 0 {
            return Ok(());
        }
        self.0.lines_lost.add(lines);
        let reason = match self.0.error.lock().take() {
            Some(error) => error.to_string(),
            None => "lines arrive faster than they can be written".to_owned(),
        };
        if let Some(suppressed) = self.0.log_limit.admit() {
            tracing::warn!(to = %self.0.target, lines, reason, suppressed, "lines lost");
        }
        Err(LostLinesError { lines, target: self.0.target.clone(), reason })
    }
}

impl SharedTarget {
    /// Opens the target, which may block, and starts its thread.
    async fn start(&self, free_threads: &Arc<Semaphore>) -> Result<LineQueue, OpenError> {
        let thread = free_threads.clone().try_acquire_owned().map_err(|_| OpenError::TooMany)?;
        let (target, rotation, last) = (self.target.clone(), self.rotation.clone(), self.error.clone());
        let started = spawn_blocking(move || {
            let sink = Sink::open(&target, rotation, thread)?;
            LineQueue::start("stdio", sink, QUEUE_LIMIT, move |error| *last.lock() = Some(error))
        });
        started
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|error| OpenError::Unwritable { target: self.target.clone(), reason: error.to_string() })
    }
}
