//! Answers of the cache, and waiting for equal requests.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{CacheUse, DispatchError, Request, max_wait};
use crate::{
    answer::CheckAnswer,
    cache::{CacheOutcome, CheckCache, Cost, Evaluated, Found, Joined, Leader},
};

/// The longest wait for the answer to an equal request.
const MAX_WAIT: Duration = Duration::from_secs(10);

impl<'s> Request<'s> {
    /// Generates attributes and checks, or returns the cached answer.
    ///
    /// # Errors
    /// The evaluation fails, and the cache has no expired answer of an equal request that the rules allow in its place.
    pub async fn answer(&mut self) -> Result<CheckAnswer, DispatchError> {
        let snapshot = self.context.snapshot;
        let cache = if self.context.is_strict { &snapshot.strict_cache } else { &snapshot.cache };
        // A trace shows an evaluation.
        let mut cache = cache.as_ref().filter(|_| self.record.trace.is_none());
        if let Some(bypassed) = cache
            && let Some(cached) = &snapshot.cached
            && !cached.contains(self.namespace.as_str())
        {
            bypassed.counts.request(CacheOutcome::Bypassed);
            cache = None;
        }
        match cache {
            Some(cache) => self.find_or_evaluate(cache).await,
            None => Box::pin(self.evaluate()).await,
        }
    }

    async fn find_or_evaluate(&mut self, cache: &'s CheckCache) -> Result<CheckAnswer, DispatchError> {
        let (mut waited, mut may_wait) = (false, true);
        let (missed, leader) = loop {
            let missed = match cache.find(self.tenant(), &self.bag) {
                Ok(found) => return Ok(self.reuse(cache, found, waited, false)),
                Err(missed) => missed,
            };
            let joined = if may_wait { cache.join(&missed) } else { Joined::Alone };
            match joined {
                Joined::Alone => break (missed, None),
                Joined::Leads(leader) => {
                    // An equal request may have been answered in the meantime.
                    match cache.find(self.tenant(), &self.bag) {
                        Ok(found) => return Ok(self.reuse(cache, found, waited, false)),
                        Err(missed) => break (missed, Some(leader)),
                    }
                }
                Joined::Follows(follower) => {
                    waited = true;
                    // If the answer of the other request does not hold for this one, another wait would not help either. Half
                    // of the time is left for its calls: a check must not fail because another one is slow.
                    let patience = max_wait(self.context.caller, MAX_WAIT);
                    may_wait = timeout(patience, follower.wait()).await == Ok(false);
                }
            }
        };
        // A generated attribute may change the namespace.
        let tenant = self.tenant().to_owned();
        let start = Instant::now();
        self.record.origin = Some(Box::default());
        // A later request with this answer may be logged, or evaluated in the shadow.
        self.context.names_rules = true;
        let result = Box::pin(self.evaluate()).await;
        let origin = self.record.origin.take().unwrap_or_default();
        let evaluation = self.evaluation;
        if evaluation.allows_stale()
            && let Some(found) = cache.renew(&missed)
        {
            if let Some(leader) = leader {
                leader.complete();
            }
            return Ok(self.reuse(cache, found, false, true));
        }
        let answer =
            result.as_ref().ok().filter(|_| evaluation.is_complete() && !evaluation.has_ignored_failure);
        let key = answer.and_then(|answer| {
            let evaluated = Evaluated {
                answer,
                references: &self.references,
                stale_if_error: evaluation.caching.stale_if_error,
                origin: &origin,
                cost: Cost { calls: evaluation.calls, took: start.elapsed() },
            };
            let is_awaited = leader.as_ref().is_some_and(Leader::is_awaited);
            cache.insert(&tenant, &self.bag, evaluated, is_awaited)
        });
        if answer.is_some() || evaluation.denied {
            cache.supersede(&missed);
        }
        if let Some(leader) = leader {
            leader.complete();
        }
        cache.counts.request(CacheOutcome::Miss);
        self.cache_use = Some(CacheUse { outcome: CacheOutcome::Miss, key });
        result
    }

    /// Uses a cached answer, after this request has `waited` for an equal one, or was itself `evaluated` and failed.
    fn reuse(&mut self, cache: &CheckCache, found: Found, waited: bool, evaluated: bool) -> CheckAnswer {
        let outcome = match (found.is_stale, waited) {
            (true, _) => CacheOutcome::Stale,
            (false, true) => CacheOutcome::Coalesced,
            (false, false) => CacheOutcome::Hit,
        };
        cache.counts.request(outcome);
        found.origin.count_use(evaluated);
        self.reused_references = Some(found.references);
        self.cache_use = Some(CacheUse { outcome, key: Some(found.key) });
        found.answer
    }
}
