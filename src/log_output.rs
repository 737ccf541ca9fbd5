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

/// Returns an event as one line. Texts of peers, such as names of pushed resources, could otherwise forge events.
fn one_line(event: &[u8]) -> Vec<u8> {
    // The logger escapes ESC in values, and colors need it.
    let is_plain = |byte: u8| byte == 0x1b || byte == b'\t' || !byte.is_ascii_control();
    let text = event.strip_suffix(b"\n").unwrap_or(event);
    let mut line = Vec::with_capacity(event.len());
    for &byte in text {
        if is_plain(byte) {
            line.push(byte);
        } else {
            line.extend(byte.escape_ascii());
        }
    }
    line.push(b'\n');
    line
}

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match LINES.get() {
            Some(lines) => lines.add(one_line(line)),
            None => io::stderr().write_all(line)?,
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
        assert_eq!(one_line(b"plain\n"), b"plain\n");
        assert_eq!(one_line(b"name=a\r\nERROR forged\0\n"), b"name=a\\r\\nERROR forged\\x00\n");
        assert_eq!(
            one_line("\u{1b}[31mERROR\u{1b}[0m ä\n".as_bytes()),
            "\u{1b}[31mERROR\u{1b}[0m ä\n".as_bytes()
        );
    }
}
