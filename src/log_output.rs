//! The output of the log: a thread writes it to stderr. If nobody reads it, lines are dropped and counted, and no call waits.

use std::{
    io::{self, Write},
    sync::OnceLock,
    time::Duration,
};

use mixer_adapter_core::framework::line_queue::{LineCounts, LineQueue};

use crate::printable::printable;

/// Maximum size of lines that wait to be written, in bytes.
const MAX_QUEUED: usize = 1 << 20;

/// Maximum size of an event, in bytes.
const MAX_EVENT: usize = 16 << 10;

/// How long the end of the process waits for lines that are not written yet.
const FLUSH: Duration = Duration::from_millis(200);

static LINES: OnceLock<LineQueue> = OnceLock::new();

/// One event of the log: the logger writes it as a whole.
pub(crate) struct LogLine {
    /// Whether the logger writes colors.
    pub(crate) colored: bool,
}

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

/// Returns an event as one line, of at most 16 KiB before characters are escaped. Texts of peers, such as names of pushed resources, could otherwise forge events: the logger escapes
/// only messages and errors, and those only in part.
fn one_line(event: &[u8], colored: bool) -> Vec<u8> {
    let event = event.strip_suffix(b"\n").unwrap_or(event);
    let text = String::from_utf8_lossy(&event[..event.len().min(MAX_EVENT)]);
    let mut line = printable(&text, &[], colored).into_owned().into_bytes();
    line.extend_from_slice(if event.len() > MAX_EVENT { b"...\n" } else { b"\n" });
    line
}

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let event = one_line(line, self.colored);
        match LINES.get() {
            Some(lines) => lines.add(event),
            None => io::stderr().write_all(&event)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        for (event, line) in [
            ("plain\n", "plain\n"),
            ("name=a\r\nERROR forged\0\n", "name=a\\r\\nERROR forged\\u0000\n"),
            ("name=\u{1b}[2J\u{9b}2J\n", "name=\\u001b[2J\\u009b2J\n"),
        ] {
            assert_eq!(String::from_utf8_lossy(&one_line(event.as_bytes(), true)), line);
        }
        let long = [b'x'; MAX_EVENT + 1];
        assert_eq!(one_line(&long[1..], false).len(), MAX_EVENT + 1);
        assert!(one_line(&long, false).ends_with(b"xx...\n"));
        let red = "\u{1b}[31mERROR\u{1b}[0m \u{e4}\n".as_bytes();
        assert_eq!(one_line(red, true), red);
    }
}
