//! The output of the log: stderr, which a thread of its own writes. Where nobody reads it, lines are dropped and counted, and no call waits.

use std::{
    io::{self, Write},
    sync::OnceLock,
    time::Duration,
};

use mixer_adapter_core::framework::line_queue::{LineCounts, LineQueue};

/// Maximum size of lines that wait to be written, in bytes.
const MAX_QUEUED: usize = 1 << 20;

/// How long the end of the process waits for lines that are not written yet.
const FLUSH: Duration = Duration::from_millis(200);

static LINES: OnceLock<LineQueue> = OnceLock::new();

/// One event of the log: the logger writes it as a whole.
pub(crate) struct LogLine;

/// Starts the thread. What cannot be written has nowhere to be reported.
///
/// # Errors
/// The system has no thread.
pub(crate) fn start() -> io::Result<()> {
    if LINES.get().is_none() {
        // Fails if another thread has started it meanwhile.
        let _ = LINES.set(LineQueue::start("log", io::stderr(), MAX_QUEUED, drop)?);
    }
    Ok(())
}

/// The outcomes of lines; `None` without a log.
pub(crate) fn counts() -> Option<&'static LineCounts> {
    LINES.get().map(LineQueue::counts)
}

/// Waits until all lines so far are written, but not for long.
pub(crate) fn flush() {
    if let Some(lines) = LINES.get() {
        lines.flush(FLUSH);
    }
}

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match LINES.get() {
            Some(lines) => lines.add(line.to_vec()),
            None => io::stderr().write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
