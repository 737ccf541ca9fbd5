use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The number of tokens with a wrong signature that a connection may show at once, and the time after which it may show one more.
const MAX_REFUSED: u32 = 8;
const REFUSED_INTERVAL: Duration = Duration::from_secs(1);

/// Counts the tokens of a connection that were verified in vain, so that they cost no more than other requests.
#[derive(Debug, Default)]
pub(crate) struct RefusedTokens(
    /// When none counts any more.
    Mutex<Option<Instant>>,
);

impl RefusedTokens {
    /// Returns whether another token may be verified.
    pub(crate) fn admits_another(&self) -> bool {
        let left =
            self.0.lock().map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        left <= REFUSED_INTERVAL * (MAX_REFUSED - 1)
    }

    /// Counts a token that was refused.
    pub(crate) fn count(&self) {
        let now = Instant::now();
        let mut until = self.0.lock();
        *until = Some(until.map_or(now, |until| until.max(now)) + REFUSED_INTERVAL);
    }
}
