//! Delays between attempts. By hand: crates for retries also run the attempts, and the loops here wait for other events meanwhile.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

/// Exponential backoff: the delay between attempts doubles up to the longest one. Each delay is shortened at random by up to a half,
/// so that clients that lost a server together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub first: Duration,
    /// The longest delay.
    pub longest: Duration,
}

impl Backoff {
    /// Starts a series of attempts.
    pub fn delays(self) -> Delays {
        Delays { backoff: self, failures: 0, last: Duration::ZERO }
    }
}

/// The delays of one series of attempts.
#[derive(Clone, Debug)]
pub struct Delays {
    backoff: Backoff,
    failures: u32,
    last: Duration,
}

impl Delays {
    /// Returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.shortened_by(random() / 2.0)
    }

    /// Returns the last delay; zero before the first.
    pub fn last(&self) -> Duration {
        self.last
    }

    /// Returns the number of delays since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Starts again from the first delay, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    fn shortened_by(&mut self, part: f64) -> Duration {
        let Backoff { first, longest } = self.backoff;
        let full = first.saturating_mul(1 << self.failures.min(30)).min(longest);
        self.failures = self.failures.saturating_add(1);
        self.last = full.saturating_sub(full.mul_f64(part));
        self.last
    }
}

/// Returns a random number from 0 to 1: from the keys of a new hasher, the standard library's only source of randomness.
pub fn random() -> f64 {
    f64::from(RandomState::new().hash_one(0) as u32) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn delays() -> Delays {
        Backoff { first: SECOND, longest: 60 * SECOND }.delays()
    }

    #[test]
    fn delays_double_up_to_the_longest_and_start_again_after_a_success() {
        let mut delays = delays();
        let seconds: Vec<u64> = (0..8).map(|_| delays.shortened_by(0.0).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((delays.failures(), delays.last()), (8, 60 * SECOND));
        delays.reset();
        assert_eq!((delays.failures(), delays.shortened_by(0.0)), (0, SECOND));
    }

    #[test]
    fn jitter_shortens_a_delay_by_up_to_a_half() {
        for _ in 0..100 {
            assert!((SECOND / 2..=SECOND).contains(&delays().next_delay()));
        }
    }

    #[test]
    fn any_number_of_failures_has_a_delay() {
        let mut delays = delays();
        delays.failures = u32::MAX;
        assert_eq!(delays.shortened_by(0.0), 60 * SECOND);
    }
}
