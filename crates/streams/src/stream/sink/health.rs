//! Whether the streams of a sink work.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::stream::StreamId;
use mixer_adapter_config::{
    MAX_TEXT,
    source::{StreamError, unix_time},
    truncate,
};

/// A stream that is open for this time works, whatever happens to others. A later error is a new one.
const STEADY: Duration = Duration::from_secs(10);

/// The last error of the streams of a sink, until one works.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    error: Option<StreamError>,
    /// When the last stream was opened, or recovered from a failed exchange; `None` after an error.
    connected: Option<Instant>,
    /// When the open streams were opened.
    open: BTreeMap<StreamId, Instant>,
}

impl Health {
    pub(super) fn opened(&self, id: StreamId) {
        let (mut state, now) = (self.0.lock(), Instant::now());
        state.connected = Some(now);
        state.open.insert(id, now);
    }

    /// Records the end of a stream. A graceful end by either side changes nothing.
    pub(super) fn ended(&self, id: StreamId, status: Option<&Status>) {
        let mut state = self.0.lock();
        if state.open.remove(&id).is_some_and(|opened| opened.elapsed() >= STEADY) {
            state.error = None;
        }
        drop(state);
        if let Some(status) = status {
            self.failed(status);
        }
    }

    /// Records an error, unless this side or the peer ended a stream without one.
    pub(crate) fn failed(&self, status: &Status) {
        if !is_error(status) {
            return;
        }
        let error = truncate(&format!("{:?}: {}", status.code(), status.message()), MAX_TEXT);
        let mut state = self.0.lock();
        let since = state.error.as_ref().map_or_else(unix_time, |earlier| earlier.since);
        state.error = Some(StreamError { error, since });
        state.connected = None;
    }

    /// Forgets the error of a transport whose exchanges are independent.
    pub(crate) fn recovered(&self) {
        let mut state = self.0.lock();
        state.error = None;
        state.connected.get_or_insert_with(Instant::now);
    }

    /// Returns how long a stream has been open without a failed exchange; `None` without an open stream.
    pub(crate) fn connected_for(&self) -> Option<Duration> {
        let state = self.0.lock();
        state.connected.filter(|_| !state.open.is_empty()).map(|since| since.elapsed())
    }

    /// Returns the last error, unless a stream works.
    pub(crate) fn error(&self) -> Option<StreamError> {
        let state = self.0.lock();
        let is_connected = state.connected.is_some() && !state.open.is_empty();
        let works = is_connected || state.open.values().any(|opened| opened.elapsed() >= STEADY);
        state.error.clone().filter(|_| !works)
    }
}

/// Returns whether a stream broke, rather than being ended by this side or without an error by the peer.
pub(super) fn is_error(status: &Status) -> bool {
    !matches!(status.code(), Code::Ok | Code::Cancelled | Code::Aborted)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_connection_counts_from_its_last_error() {
        let (health, second) = (Health::default(), Duration::from_secs(1));
        assert_eq!(health.connected_for(), None);
        health.opened(1);
        tokio::time::advance(second).await;
        assert_eq!(health.connected_for(), Some(second));
        health.failed(&Status::unavailable("refused"));
        assert_eq!(health.connected_for(), None);
        tokio::time::advance(second).await;
        for since in [0, 1] {
            health.recovered();
            assert_eq!(health.connected_for(), Some(since * second));
            tokio::time::advance(second).await;
        }
        health.ended(1, None);
        assert_eq!(health.connected_for(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_is_over_while_a_stream_is_open_and_for_good_once_it_stays_open() {
        let health = Health::default();
        health.failed(&Status::unavailable("refused"));
        let first = health.error().unwrap();
        assert_eq!(first.error, "Unavailable: refused");
        health.opened(1);
        assert_eq!(health.error(), None, "it is connected");
        tokio::time::advance(Duration::from_secs(5)).await;
        health.ended(1, Some(&Status::resource_exhausted("too large")));
        let second = health.error().unwrap();
        assert_eq!((second.error.as_str(), second.since), ("ResourceExhausted: too large", first.since));
        health.opened(2);
        tokio::time::advance(STEADY).await;
        health.ended(2, Some(&Status::ok("the server ended it")));
        assert_eq!(health.error(), None, "an orderly end is no error");
    }

    /// Transports without connections report errors on an open stream.
    #[test]
    fn an_error_on_an_open_stream_lasts_until_the_next_exchange() {
        let health = Health::default();
        health.opened(1);
        health.failed(&Status::unavailable("503"));
        assert!(health.error().is_some());
        health.recovered();
        assert_eq!(health.error(), None);
    }
}
