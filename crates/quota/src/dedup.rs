//! Deduplication of calls.

use std::{
    collections::HashMap,
    mem,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};

use mixer_adapter_core::{Grant, QuotaRequest, metrics::Events};

use super::fingerprint::Fingerprinter;

/// The number of shards, each with its own lock, so that calls rarely wait for each other.
const SHARDS: usize = 16;

/// The maximum number of answers of a shard in each period: 1,800,000 in all, up to 100 MB.
const ANSWERS: usize = 56 * 1024;

/// The answers of recent calls. A repeated call gets the same answer, and counts once.
///
/// An answer is stored until the end of the period after its own, so for one to two periods.
#[derive(Debug)]
pub struct Dedup {
    fingerprinter: Fingerprinter,
    period: Duration,
    shards: [Mutex<Shard>; SHARDS],
    answers: usize,
    forgotten_total: Events,
    forgotten: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    period: u128,
    recent: HashMap<u128, Answer, RandomState>,
    old: HashMap<u128, Answer, RandomState>,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    amount: i64,
    expires: Duration,
}

impl Dedup {
    /// Creates a store; `forgotten_total` counts the answers that were dropped early.
    pub fn new(period: Duration, forgotten_total: Events) -> Self {
        Self {
            fingerprinter: Fingerprinter::default(),
            period,
            shards: Default::default(),
            answers: ANSWERS,
            forgotten_total,
            forgotten: AtomicU64::new(0),
        }
    }

    /// Returns the stored answer of a call with its remaining validity, or else runs `call` and stores the answer. Concurrent
    /// equal calls wait. Calls are equal if they have the same quota, id, amount and best effort; calls without an id are
    /// never equal. Errors are not stored.
    ///
    /// # Errors
    /// The error of `call`.
    pub fn once<E>(
        &self,
        quota: &str,
        request: &QuotaRequest,
        now: Duration,
        call: impl FnOnce() -> Result<Grant, E>,
    ) -> Result<Grant, E> {
        if request.dedup_id.is_empty() {
            return call();
        }
        let (id, mut shard) = self.shard(quota, request, now);
        if let Some(grant) = shard.find(id, now) {
            return Ok(grant);
        }
        let grant = call()?;
        self.insert(&mut shard, id, grant, now);
        Ok(grant)
    }

    /// Returns the stored answer of a call with its remaining validity.
    pub fn find(&self, quota: &str, request: &QuotaRequest, now: Duration) -> Option<Grant> {
        if request.dedup_id.is_empty() {
            return None;
        }
        let (id, shard) = self.shard(quota, request, now);
        shard.find(id, now)
    }

    /// Stores the answer of a call that may be repeated.
    pub fn store(&self, quota: &str, request: &QuotaRequest, grant: Grant, now: Duration) {
        if !request.dedup_id.is_empty() {
            let (id, mut shard) = self.shard(quota, request, now);
            self.insert(&mut shard, id, grant, now);
        }
    }

    fn shard(&self, quota: &str, request: &QuotaRequest, now: Duration) -> (u128, MutexGuard<'_, Shard>) {
        let id = self.fingerprinter.call(quota, request);
        let mut shard = self.shards[id as usize % SHARDS].lock();
        shard.turn_to(now.as_nanos() / self.period.as_nanos().max(1));
        (id, shard)
    }

    fn insert(&self, shard: &mut Shard, id: u128, grant: Grant, now: Duration) {
        if shard.recent.len() >= self.answers {
            let old = shard.old.len() as u64;
            shard.turn();
            self.forgotten_total.add(old);
            if self.forgotten.fetch_add(old, Relaxed) == 0 && old > 0 {
                tracing::warn!(
                    period = ?self.period,
                    "too many calls to store all answers for min_deduplication_duration: repeated calls may count \
                     twice; use a shorter duration"
                );
            }
        }
        let expires = now.saturating_add(grant.valid_duration());
        shard.recent.insert(id, Answer { amount: grant.granted(), expires });
    }

    /// Returns an estimate of the memory of the answers in bytes.
    pub fn bytes(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| {
                let shard = shard.lock();
                shard.recent.len() + shard.old.len()
            })
            .sum::<usize>()
            * size_of::<(u128, Answer)>()
    }
}

impl Shard {
    /// Advances to a period, and drops answers older than the previous one.
    fn turn_to(&mut self, period: u128) {
        // A thread that read an earlier time changes nothing.
        let passed = period.saturating_sub(self.period);
        if passed > 0 {
            self.period = period;
            self.turn();
        }
        if passed > 1 {
            self.old.clear();
        }
    }

    fn turn(&mut self) {
        self.old = mem::take(&mut self.recent);
    }

    fn find(&self, id: u128, now: Duration) -> Option<Grant> {
        let answer = self.recent.get(&id).or_else(|| self.old.get(&id))?;
        Some(Grant::amount(answer.amount).valid_for(answer.expires.saturating_sub(now)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;

    use super::*;

    fn args(dedup_id: &str, amount: i64) -> QuotaRequest {
        QuotaRequest::new(amount).with_dedup_id(dedup_id)
    }

    fn once(dedup: &Dedup, quota: &str, request: &QuotaRequest, seconds: u64, grant: Grant) -> Grant {
        dedup.once(quota, request, Duration::from_secs(seconds), || Ok::<_, Infallible>(grant)).unwrap()
    }

    /// TestReaper and TestReaperTicker: an answer outlives one turn of the periods, not two.
    #[test]
    fn an_answer_is_cached_for_between_one_and_two_periods() {
        for (given, latest) in [(0, 19), (9, 19), (10, 29)] {
            let dedup = Dedup::new(Duration::from_secs(10), Events::default());
            let ask = args("id", 1);
            once(&dedup, "q", &ask, given, Grant::amount(1));
            assert_eq!(
                once(&dedup, "q", &ask, latest, Grant::amount(2)),
                Grant::amount(1),
                "given at {given}"
            );
            assert_eq!(
                once(&dedup, "q", &ask, latest + 1, Grant::amount(2)),
                Grant::amount(2),
                "given at {given}"
            );
        }
    }

    #[test]
    fn only_the_same_call_gets_the_answer() {
        let dedup = Dedup::new(Duration::from_secs(10), Events::default());
        once(&dedup, "q", &args("id", 5), 0, Grant::amount(5));
        assert_eq!(once(&dedup, "q", &args("id", 5), 0, Grant::nothing()), Grant::amount(5));
        let best_effort = args("id", 5).with_best_effort();
        for (quota, ask) in
            [("other", args("id", 5)), ("q", args("id2", 5)), ("q", args("id", 9)), ("q", best_effort)]
        {
            assert_eq!(once(&dedup, quota, &ask, 0, Grant::nothing()), Grant::nothing());
        }
    }

    #[test]
    fn a_call_without_an_id_is_like_no_other() {
        let dedup = Dedup::new(Duration::from_secs(10), Events::default());
        once(&dedup, "q", &args("", 1), 0, Grant::amount(1));
        assert_eq!(once(&dedup, "q", &args("", 1), 0, Grant::amount(2)), Grant::amount(2));
    }

    #[test]
    fn a_repeated_call_gets_the_remaining_validity() {
        let dedup = Dedup::new(Duration::from_secs(100), Events::default());
        let grant = Grant::amount(1).valid_for(Duration::from_secs(60));
        assert_eq!(once(&dedup, "q", &args("id", 1), 0, grant), grant);
        let left = |at| once(&dedup, "q", &args("id", 1), at, Grant::nothing()).valid_duration().as_secs();
        assert_eq!((left(50), left(70)), (10, 0));
    }

    #[test]
    fn an_error_is_not_cached() {
        let dedup = Dedup::new(Duration::from_secs(10), Events::default());
        assert_eq!(dedup.once("q", &args("id", 1), Duration::ZERO, || Err("full")), Err("full"));
        assert_eq!(once(&dedup, "q", &args("id", 1), 0, Grant::amount(1)), Grant::amount(1));
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_for_that_is_counted() {
        let dedup = Dedup { answers: 10, ..Dedup::new(Duration::from_secs(3600), Events::default()) };
        for id in 0..1000 {
            once(&dedup, "q", &args(&id.to_string(), 1), 0, Grant::amount(1));
        }
        let kept = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.recent.len() + shard.old.len()
        };
        let kept: usize = dedup.shards.iter().map(kept).sum();
        assert!(kept <= 2 * 10 * SHARDS, "{kept}");
        assert_eq!(dedup.forgotten.load(Relaxed) + kept as u64, 1000);
    }
}
