use std::time::{Duration, Instant};

/// A rate limit: a burst, and the interval after which another event is permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number of events at once, after a pause.
    pub burst: u32,
    /// The interval between events after that.
    pub every: Duration,
}

/// The state of a [`Rate`].
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: Rate,
    /// The time when the bucket would be full again, from which the number of taken events follows.
    full: Option<Instant>,
}

impl Bucket {
    /// Creates a bucket that is full.
    pub fn new(rate: Rate) -> Self {
        Self { rate, full: None }
    }

    /// Returns the time of the next permitted event, if it is not permitted now.
    pub fn wait(&self, now: Instant) -> Option<Instant> {
        let spare = self.rate.every * self.rate.burst.saturating_sub(1);
        self.full.and_then(|full| full.checked_sub(spare)).filter(|earliest| *earliest > now)
    }

    /// Takes an event, now or in advance; returns the time when it is permitted.
    pub fn take(&mut self, now: Instant) -> Instant {
        let at = self.wait(now).unwrap_or(now);
        self.full = Some(self.full.map_or(now, |full| full.max(now)) + self.rate.every);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Rate { burst: 100, every: SECOND });
        assert!((0..100).all(|_| bucket.take(start) == start));
        // As Galley does: of 113 requests the last is taken after 13 s (docs/behaviour/mcp.md#limits-of-a-source).
        let late = (0..13).map(|_| bucket.take(start)).last();
        assert_eq!(late, Some(start + 13 * SECOND));
    }

    #[test]
    fn rest_earns_again_up_to_the_burst() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Rate { burst: 2, every: SECOND });
        assert_eq!(bucket.wait(start), None);
        bucket.take(start);
        bucket.take(start);
        assert_eq!(bucket.wait(start), Some(start + SECOND));
        assert_eq!(bucket.wait(start + SECOND), None);
        let later = start + 100 * SECOND;
        assert_eq!(
            [bucket.take(later), bucket.take(later), bucket.take(later)],
            [later, later, later + SECOND]
        );
    }
}
