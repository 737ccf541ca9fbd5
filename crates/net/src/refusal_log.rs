//! The log of refused connections, which clients can make any number of.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{Bucket, Rate};

/// At most ten events in any ten seconds.
const RATE: Rate = Rate { burst: 5, every: Duration::from_secs(2) };

/// Logs refused connections at a bounded rate.
#[derive(Debug)]
pub(crate) struct RefusalLog(Mutex<State>);

#[derive(Debug)]
struct State {
    bucket: Bucket,
    /// Refusals since the last event.
    unlogged: u64,
}

impl RefusalLog {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State { bucket: Bucket::new(RATE), unlogged: 0 }))
    }

    pub(crate) fn log(&self, error: &impl Display) {
        if let Some(unlogged) = self.take(Instant::now()) {
            tracing::info!(%error, unlogged, "connection refused");
        }
    }

    /// Returns the number of refusals since the last event, if another event is permitted now.
    fn take(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        if state.bucket.wait(now).is_some() {
            state.unlogged += 1;
            return None;
        }
        state.bucket.take(now);
        Some(std::mem::take(&mut state.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_refusals_in_ten_seconds_are_logged_and_the_others_counted() {
        let (log, start) = (RefusalLog::new(), Instant::now());
        let logged: Vec<u64> =
            (0..1000).filter_map(|centis| log.take(start + Duration::from_millis(10 * centis))).collect();
        assert!(logged.len() <= 10, "{logged:?}");
        let unlogged = log.take(start + Duration::from_secs(60));
        assert_eq!(unlogged.map(|rest| rest + logged.iter().sum::<u64>() + logged.len() as u64), Some(1000));
    }
}
