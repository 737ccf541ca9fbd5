use std::time::Duration;

/// How long to wait before dialing again.
///
/// The wait doubles with every stream that came to nothing, and starts over only after a good one: one that brought a push
/// that was accepted, and that lasted longer than the wait before it. Opening a stream is not enough, or a peer that opens
/// streams and refuses is dialed in a hot loop (docs/behaviour/mcp.md#reconnecting), and neither is a push, or one collection
/// that is too large is fetched in one.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    last: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first, last: Duration::ZERO }
    }

    /// A stream ended that lasted so long.
    pub(super) fn ended(&mut self, good: bool, lasted: Duration) {
        if good && lasted > self.last {
            self.next = self.first;
        }
    }

    /// The wait before the next stream: up to a half less than its length, by chance, so that sinks that lost a source together
    /// do not come back together.
    pub(super) fn wait(&mut self, chance: u32) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.longest);
        self.last = full - full.mul_f64(0.5 * f64::from(chance) / f64::from(u32::MAX));
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn backoff() -> Backoff {
        Backoff::new(SECOND, 60 * SECOND)
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let mut backoff = backoff();
        let waits: Vec<u64> = (0..8).map(|_| backoff.wait(0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn chance_shortens_a_wait_by_up_to_a_half() {
        assert_eq!(backoff().wait(u32::MAX), SECOND / 2);
        let waits: Vec<_> = [0, u32::MAX / 2, u32::MAX].map(|chance| backoff().wait(chance)).to_vec();
        assert!(waits.is_sorted_by(|a, b| a > b), "{waits:?}");
    }

    #[test]
    fn only_a_good_stream_that_lasted_starts_over() {
        let mut backoff = backoff();
        backoff.wait(0);
        backoff.wait(0);
        backoff.ended(false, 100 * SECOND);
        assert_eq!(backoff.wait(0), 4 * SECOND, "opened and refused");
        backoff.ended(true, 3 * SECOND);
        assert_eq!(backoff.wait(0), 8 * SECOND, "good, but shorter than the wait before it");
        backoff.ended(true, 9 * SECOND);
        assert_eq!(backoff.wait(0), SECOND);
    }
}
