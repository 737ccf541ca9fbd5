use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

/// How long to rest between attempts: `first`, then half as long again each time, up to `longest`; each spread by a fifth
/// either way, so that clients of one server do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// The most, before it is spread.
    pub longest: Duration,
}

impl Backoff {
    pub(super) fn start(self) -> Rests {
        Rests { backoff: self, taken: 0 }
    }
}

/// The rests of one row of attempts.
#[derive(Debug)]
pub(super) struct Rests {
    backoff: Backoff,
    taken: u32,
}

impl Rests {
    /// How long to rest now.
    pub(super) fn next(&mut self) -> Duration {
        let growth = 1.5_f64.powi(self.taken.min(100) as i32);
        self.taken = self.taken.saturating_add(1);
        let seconds = (self.backoff.first.as_secs_f64() * growth).min(self.backoff.longest.as_secs_f64());
        // The standard library's only source of chance: the keys of a new hasher.
        let chance = (RandomState::new().hash_one(self.taken) % 1000) as f64 / 1000.0;
        Duration::from_secs_f64(seconds * (0.8 + 0.4 * chance))
    }

    /// How many rests were taken since the last success.
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// An attempt succeeded.
    pub(super) fn reset(&mut self) {
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_by_half_up_to_the_longest_within_a_fifth() {
        let backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_millis(300) };
        for _ in 0..50 {
            let mut rests = backoff.start();
            for millis in [100.0, 150.0, 225.0, 300.0, 300.0] {
                let rest = rests.next().as_secs_f64() * 1000.0;
                assert!((millis * 0.8..=millis * 1.2).contains(&rest), "{rest} instead of {millis}");
            }
            rests.reset();
            assert!(rests.next() <= Duration::from_millis(120));
        }
    }

    #[test]
    fn many_failures_do_not_overflow() {
        let mut rests = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) }.start();
        rests.taken = u32::MAX;
        assert!(rests.next() <= Duration::from_secs(36));
    }
}
