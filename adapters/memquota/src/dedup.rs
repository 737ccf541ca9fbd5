use std::{
    collections::HashMap,
    hash::Hash,
    mem,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use mixer_adapter_core::{Grant, QuotaRequest, metrics::events};

use super::digest::Digester;

/// Answers are kept in parts with a lock each, so that calls seldom wait for each other.
const SHARDS: usize = 16;

/// How many answers a part keeps of each period: 1,800,000 in all, which take 100 MB.
const ANSWERS: usize = 56 * 1024;

/// The answers of the latest calls: a call sent again gets the answer it got, and counts once.
///
/// An answer is kept until the end of the period after that in which it was given, so for between one and two periods.
#[derive(Debug)]
pub(super) struct Dedup {
    digester: Digester,
    period: Duration,
    shards: [Mutex<Shard>; SHARDS],
    answers: usize,
    forgotten: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    period: u128,
    recent: HashMap<u128, Answer>,
    old: HashMap<u128, Answer>,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    amount: i64,
    expires: Duration,
}

impl Dedup {
    pub(super) fn new(period: Duration) -> Self {
        Self {
            digester: Digester::default(),
            period,
            shards: Default::default(),
            answers: ANSWERS,
            forgotten: AtomicU64::new(0),
        }
    }

    /// The answer that a call got, with what is left of its validity, else that of `call`, which runs while nobody else
    /// asks for the same. A call is the same as another if quota, id and what it asks for are; without an id it is like
    /// no other. An error is not kept.
    pub(super) fn once<E>(
        &self,
        quota: &str,
        args: &QuotaRequest,
        now: Duration,
        call: impl FnOnce() -> Result<Grant, E>,
    ) -> Result<Grant, E> {
        if args.dedup_id.is_empty() {
            return call();
        }
        let id = self
            .digester
            .digest(|hasher| (quota, &args.dedup_id, args.amount, args.best_effort).hash(hasher));
        let shard = &self.shards[id as usize % SHARDS];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        shard.turn_to(now.as_nanos() / self.period.as_nanos().max(1));
        if let Some(answer) = shard.find(id) {
            return Ok(Grant::amount(answer.amount).valid_for(answer.expires.saturating_sub(now)));
        }
        let grant = call()?;
        if shard.recent.len() >= self.answers {
            let old = shard.old.len() as u64;
            shard.turn();
            events("memquota", "answers_forgotten").add(old);
            if self.forgotten.fetch_add(old, Relaxed) == 0 && old > 0 {
                tracing::warn!(
                    period = ?self.period,
                    "memquota is called so often that it forgets answers before min_deduplication_duration: \
                     a call sent again may count twice; make it shorter"
                );
            }
        }
        let expires = now.saturating_add(grant.valid_duration());
        shard.recent.insert(id, Answer { amount: grant.granted(), expires });
        Ok(grant)
    }

    /// How many answers were forgotten before their time, for want of room.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten.load(Relaxed)
    }
}

impl Shard {
    /// Lets go of what is older than the period before this one.
    fn turn_to(&mut self, period: u128) {
        // A thread that read its clock before another came here changes nothing.
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

    fn find(&self, id: u128) -> Option<Answer> {
        self.recent.get(&id).or_else(|| self.old.get(&id)).copied()
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

    fn once(dedup: &Dedup, quota: &str, args: &QuotaRequest, seconds: u64, grant: Grant) -> Grant {
        dedup.once(quota, args, Duration::from_secs(seconds), || Ok::<_, Infallible>(grant)).unwrap()
    }

    /// TestReaper and TestReaperTicker: an answer outlives one turn of the periods, not two.
    #[test]
    fn an_answer_is_kept_for_between_one_and_two_periods() {
        for (given, latest) in [(0, 19), (9, 19), (10, 29)] {
            let dedup = Dedup::new(Duration::from_secs(10));
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
        let dedup = Dedup::new(Duration::from_secs(10));
        once(&dedup, "q", &args("id", 5), 0, Grant::amount(5));
        assert_eq!(once(&dedup, "q", &args("id", 5), 0, Grant::nothing()), Grant::amount(5));
        for (quota, ask) in [("other", args("id", 5)), ("q", args("id2", 5)), ("q", args("id", 9))] {
            assert_eq!(once(&dedup, quota, &ask, 0, Grant::nothing()), Grant::nothing());
        }
    }

    #[test]
    fn a_call_without_an_id_is_like_no_other() {
        let dedup = Dedup::new(Duration::from_secs(10));
        once(&dedup, "q", &args("", 1), 0, Grant::amount(1));
        assert_eq!(once(&dedup, "q", &args("", 1), 0, Grant::amount(2)), Grant::amount(2));
    }

    #[test]
    fn a_call_sent_again_is_told_what_is_left_of_the_validity() {
        let dedup = Dedup::new(Duration::from_secs(100));
        let grant = Grant::amount(1).valid_for(Duration::from_secs(60));
        assert_eq!(once(&dedup, "q", &args("id", 1), 0, grant), grant);
        let left = |at| once(&dedup, "q", &args("id", 1), at, Grant::nothing()).valid_duration().as_secs();
        assert_eq!((left(50), left(70)), (10, 0));
    }

    #[test]
    fn an_error_is_not_kept() {
        let dedup = Dedup::new(Duration::from_secs(10));
        assert_eq!(dedup.once("q", &args("id", 1), Duration::ZERO, || Err("full")), Err("full"));
        assert_eq!(once(&dedup, "q", &args("id", 1), 0, Grant::amount(1)), Grant::amount(1));
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_for_that_is_counted() {
        let dedup = Dedup { answers: 10, ..Dedup::new(Duration::from_secs(3600)) };
        for id in 0..1000 {
            once(&dedup, "q", &args(&id.to_string(), 1), 0, Grant::amount(1));
        }
        let kept =
            |shard: &Mutex<Shard>| shard.lock().map(|shard| shard.recent.len() + shard.old.len()).unwrap();
        let kept: usize = dedup.shards.iter().map(kept).sum();
        assert!(kept <= 2 * 10 * SHARDS, "{kept}");
        assert_eq!(dedup.forgotten() + kept as u64, 1000);
    }
}
