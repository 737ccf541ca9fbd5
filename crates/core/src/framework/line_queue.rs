//! A thread that writes lines of a log from a queue. The queue is bounded in bytes: lines beyond are dropped and counted, so that a slow
//! disk delays no call.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

/// Size in bytes at which lines are written, even if more are waiting.
const BATCH: usize = 64 << 10;

/// The outcomes of lines.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LineCounts {
    /// Lines that were written.
    pub written: AtomicU64,
    /// Lines dropped because the queue was full.
    pub dropped: AtomicU64,
    /// Lines that could not be written.
    pub failed: AtomicU64,
    queued: AtomicUsize,
}

enum Message {
    /// Whole lines.
    Lines(Vec<u8>),
    /// Answered once all earlier lines are written.
    Flush(SyncSender<()>),
}

/// The queue of lines to write.
#[derive(Debug)]
pub struct LineQueue {
    messages: Sender<Message>,
    counts: Arc<LineCounts>,
    max_queued: usize,
}

impl LineQueue {
    /// Starts the thread, which ends when this is dropped. Up to `max_queued` bytes of lines wait; `report` receives the errors of the
    /// output.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(
        thread: &str,
        output: impl io::Write + Send + 'static,
        max_queued: usize,
        report: impl FnMut(io::Error) + Send + 'static,
    ) -> io::Result<Self> {
        let counts = Arc::<LineCounts>::default();
        #[expect(clippy::disallowed_methods, reason = "`queued` bounds it in bytes")]
        let (messages, received) = channel();
        let counted = counts.clone();
        thread::Builder::new()
            .name(thread.to_owned())
            .spawn(move || write(output, &received, &counted, report))?;
        Ok(Self { messages, counts, max_queued })
    }

    /// The outcomes of lines so far.
    pub fn counts(&self) -> &LineCounts {
        &self.counts
    }

    /// Queues whole lines. If the queue is full, they are dropped and counted; lines larger than an empty queue are not.
    pub fn add(&self, text: Vec<u8>) {
        let (size, count) = (text.len(), lines(&text));
        let queued = self.counts.queued.fetch_add(size, Relaxed);
        let is_full = queued > 0 && queued + size > self.max_queued;
        if is_full || self.messages.send(Message::Lines(text)).is_err() {
            self.counts.queued.fetch_sub(size, Relaxed);
            self.counts.dropped.fetch_add(count, Relaxed);
        }
    }

    /// Waits until all lines so far are written; returns whether they were within the time.
    pub fn flush(&self, within: Duration) -> bool {
        let (done, written) = sync_channel(1);
        self.messages.send(Message::Flush(done)).is_ok() && written.recv_timeout(within).is_ok()
    }
}

/// Writes lines until the queue is dropped.
fn write(
    output: impl io::Write,
    received: &Receiver<Message>,
    counts: &LineCounts,
    mut report: impl FnMut(io::Error),
) {
    let mut output = LineOutput { output, is_torn: false };
    let mut batch = Vec::new();
    let mut next = received.recv().ok();
    while let Some(message) = next.take() {
        let mut flushed = Vec::new();
        let mut next_of_batch = Some(message);
        while let Some(message) = next_of_batch {
            match message {
                Message::Lines(lines) => batch.extend_from_slice(&lines),
                Message::Flush(done) => flushed.push(done),
            }
            let is_full = batch.len() >= BATCH || !flushed.is_empty();
            next_of_batch = if is_full { None } else { received.try_recv().ok() };
        }
        let (written, error) = output.write(&batch);
        if let Some(error) = error {
            report(error);
        }
        counts.queued.fetch_sub(batch.len(), Relaxed);
        counts.written.fetch_add(lines(&batch[..written]), Relaxed);
        counts.failed.fetch_add(lines(&batch[written..]), Relaxed);
        batch.clear();
        batch.shrink_to(2 * BATCH);
        for done in flushed {
            // The waiter may have given up.
            let _ = done.send(());
        }
        next = received.recv().ok();
    }
}

fn lines(text: &[u8]) -> u64 {
    text.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// An output of whole lines.
struct LineOutput<W> {
    output: W,
    /// Whether the last line was written only in part.
    is_torn: bool,
}

impl<W: io::Write> LineOutput<W> {
    /// Writes lines, first the end of a torn line. Returns the number of bytes written.
    fn write(&mut self, lines: &[u8]) -> (usize, Option<io::Error>) {
        let mut written = 0;
        let result = self.write_all(lines, &mut written).and_then(|()| self.output.flush());
        (written, result.err())
    }

    #[expect(clippy::disallowed_methods, reason = "the number of bytes before an error counts")]
    fn write_all(&mut self, lines: &[u8], written: &mut usize) -> io::Result<()> {
        if self.is_torn && !lines.is_empty() {
            self.output.write_all(b"\n")?;
            self.is_torn = false;
        }
        while let [_, ..] = &lines[*written..] {
            match self.output.write(&lines[*written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    *written += count;
                    self.is_torn = lines[*written - 1] != b'\n';
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
