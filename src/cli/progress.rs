//! How far a long command is, on a line of stderr that it erases in the end. Only a terminal has it.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

/// The delay of the first line, and between lines.
const INTERVAL: Duration = Duration::from_millis(200);

/// A line such as `12 of 300 files (4 %)`, or `12 files` where the total is not known.
pub(super) struct Progress {
    what: &'static str,
    total: Option<usize>,
    /// When the next line is due; `None` if stderr is not a terminal.
    next: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str, total: Option<usize>) -> Self {
        let next = io::stderr().is_terminal().then(|| Instant::now() + INTERVAL);
        Self { what, total, next, is_shown: false }
    }

    /// Shows the progress if a line is due.
    pub(super) fn at(&mut self, done: usize) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + INTERVAL);
        self.is_shown = true;
        let _ = write!(io::stderr(), "\r\x1b[K{}", line(done, self.total, self.what));
        let _ = io::stderr().flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(done: usize, total: Option<usize>, what: &str) -> String {
    match total {
        Some(total) => {
            format!("{} of {total} {what} ({} %)", done.min(total), done.min(total) * 100 / total.max(1))
        }
        None => format!("{done} {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_share_of_a_known_total() {
        assert_eq!(line(50, Some(200), "calls"), "50 of 200 calls (25 %)");
        assert_eq!(line(7, Some(0), "calls"), "0 of 0 calls (0 %)");
        assert_eq!(line(7, None, "files"), "7 files");
    }
}
