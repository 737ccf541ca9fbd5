//! Writing of whole lines.

use std::io::{self, ErrorKind, Write};

/// Writes lines so that no line continues a partial one: after a failure within a line, the next line begins after a line
/// feed.
#[derive(Debug)]
pub(super) struct LineWriter<W> {
    to: W,
    torn: bool,
}

impl<W: Write> LineWriter<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, torn: false }
    }

    /// Writes lines, in a single system call if possible.
    ///
    /// # Errors
    /// The error and the part that was not written.
    pub(super) fn write<'a>(&mut self, lines: &'a [u8]) -> Result<(), (&'a [u8], io::Error)> {
        if self.torn {
            self.to.write_all(b"\n").map_err(|error| (lines, error))?;
            self.torn = false;
        }
        let mut rest = lines;
        while !rest.is_empty() {
            #[expect(clippy::disallowed_methods, reason = "the rest is written after a short write")]
            match self.to.write(rest) {
                Ok(0) => return Err((rest, ErrorKind::WriteZero.into())),
                Ok(written) => {
                    self.torn = rest.get(written - 1) != Some(&b'\n');
                    rest = rest.get(written..).unwrap_or_default();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err((rest, error)),
            }
        }
        self.to.flush().map_err(|error| (rest, error))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Accepts at most five bytes per call, and none in the calls that are configured to fail.
    #[derive(Default)]
    struct Slow {
        taken: Vec<u8>,
        calls: usize,
        failing: Vec<usize>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.calls += 1;
            if self.failing.contains(&self.calls) {
                return Err(io::Error::other("full"));
            }
            let taken = bytes.len().min(5);
            self.taken.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_not_taken_at_once_is_written_on() {
        let mut lines = LineWriter::new(Slow::default());
        lines.write(b"one two\nthree\n").unwrap();
        assert_eq!(lines.to.taken, b"one two\nthree\n");
    }

    #[test]
    fn after_a_failure_within_a_line_the_next_begins_on_its_own() {
        let mut lines = LineWriter::new(Slow { failing: vec![2], ..Slow::default() });
        let (rest, error) = lines.write(b"one two\nthree\n").unwrap_err();
        assert_eq!((rest, error.to_string()), (&b"wo\nthree\n"[..], "full".to_owned()));
        lines.write(b"four\n").unwrap();
        assert_eq!(lines.to.taken, b"one t\nfour\n");
    }

    #[test]
    fn after_a_failure_between_lines_nothing_is_added() {
        let mut lines = LineWriter::new(Slow { failing: vec![2], ..Slow::default() });
        assert_eq!(lines.write(b"four\nfive\n").unwrap_err().0, b"five\n");
        lines.write(b"six\n").unwrap();
        assert_eq!(lines.to.taken, b"four\nsix\n");
    }
}
