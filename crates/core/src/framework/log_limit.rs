//! Limits on the number of lines that one cause writes to the log.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::locked::locked;

/// The number of lines in each [`INTERVAL`].
const LINES: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(10);

/// Limits the lines about one kind of event to ten in ten seconds.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Creates a limit.
    pub const fn new() -> Self {
        Self(Mutex::new(State { since: None, lines: 0, suppressed: 0 }))
    }

    /// Returns the number of events suppressed since the last logged one, if another may be logged now.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut state = locked(&self.0);
        if state.since.is_none_or(|since| now.saturating_duration_since(since) >= INTERVAL) {
            (state.since, state.lines) = (Some(now), 0);
        }
        if state.lines == LINES {
            state.suppressed += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

/// Logs a warning with `tracing::warn!`, at most ten in ten seconds from each place. The field `suppressed` is the number of warnings
/// that were not logged before.
#[doc(hidden)]
#[macro_export]
macro_rules! warn_limited {
    ($($argument:tt)*) => {{
        static LIMIT: $crate::framework::log_limit::LogLimit = $crate::framework::log_limit::LogLimit::new();
        if let Some(suppressed) = LIMIT.admit() {
            tracing::warn!(suppressed, $($argument)*);
        }
    }};
}

pub use crate::warn_limited;

/// The number of gRPC codes.
const CODES: usize = 17;
const UNKNOWN: usize = 2;

/// Limits the lines about failed calls by their gRPC code, so that a frequent failure does not hide another one.
#[derive(Debug, Default)]
pub struct FailureLogLimit([LogLimit; CODES]);

impl FailureLogLimit {
    /// Creates a limit.
    pub const fn new() -> Self {
        Self([const { LogLimit::new() }; CODES])
    }

    /// Returns the number of failures with this code suppressed since the last logged one, if another may be logged now.
    pub fn admit(&self, code: i32) -> Option<u64> {
        let code = usize::try_from(code).ok().filter(|code| *code < CODES);
        self.0[code.unwrap_or(UNKNOWN)].admit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_ten_in_ten_seconds_are_suppressed_and_their_number_comes_with_the_next() {
        let limit = LogLimit::new();
        let start = Instant::now();
        for _ in 0..LINES {
            assert_eq!(limit.admit_at(start), Some(0));
        }
        for _ in 0..5 {
            assert_eq!(limit.admit_at(start + INTERVAL / 2), None);
        }
        assert_eq!(limit.admit_at(start + INTERVAL), Some(5));
        assert_eq!(limit.admit_at(start + INTERVAL), Some(0));
    }
}
