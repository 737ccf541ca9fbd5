//! Counters by rule, handler and instance, with a bounded number of names.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tonic::Code;

use crate::failed_part::FailureCause;
use mixer_adapter_core::proto::istio::mixer::adapter::model::v1beta1::quota_result::Limit;
use mixer_adapter_host::metrics::CallMetrics;

/// The name of the counters of all resources beyond the first 500 of a kind.
pub const OTHER: &str = "other";

/// Maximum number of resources of each kind with separate counters.
const MAX_NAMES: usize = 500;

/// The counters of resources, which successive snapshots share.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ResourceCounts {
    /// The counters of rules.
    pub rules: Counters<RuleCounts>,
    /// The counters of handlers.
    pub handlers: Counters<HandlerCounts>,
    /// The counters of instances.
    pub instances: Counters<InstanceCounts>,
}

impl ResourceCounts {
    /// Makes room for the names of the next snapshot.
    pub(crate) fn sweep(&self) {
        self.rules.sweep();
        self.handlers.sweep();
        self.instances.sweep();
    }
}

/// The counters of a rule.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RuleCounts {
    /// Evaluations in which the condition matched, and cached answers of such evaluations.
    pub matched: AtomicU64,
    /// The number of cached answers among `matched`.
    pub cached: AtomicU64,
    /// Denials by an action, also by cached answers.
    pub denied: AtomicU64,
    /// Evaluations in which the condition could not be evaluated.
    pub failed: AtomicU64,
    /// Instances of the rule that could not be built.
    pub unbuilt: AtomicU64,
    /// The calls of handlers for the rule. A call of a report counts for each rule that has instances in it.
    pub calls: CallMetrics,
    last_failure: Mutex<Option<LastFailure>>,
}

/// The last failure in the actions of a rule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LastFailure {
    /// The full name of the handler.
    pub handler: Arc<str>,
    /// The cause.
    pub cause: FailureCause,
    /// When it occurred.
    pub at: Instant,
}

impl RuleCounts {
    /// Counts a call of a handler for the rule.
    pub(crate) fn record_call(&self, handler: &Arc<str>, code: Code, took: Duration) {
        self.calls.record(code, took);
        if code != Code::Ok {
            self.note_failure(handler, FailureCause::Call(code));
        }
    }

    /// Counts a call of a report once for each rule that has instances in it. `rules` has the counters of each instance.
    pub(crate) fn record_report<'r>(
        rules: impl Iterator<Item = &'r Arc<Self>>,
        handler: &Arc<str>,
        code: Code,
        took: Duration,
    ) {
        let mut rules: Vec<&Arc<Self>> = rules.collect();
        rules.sort_unstable_by_key(|rule| Arc::as_ptr(rule));
        rules.dedup_by(|one, other| Arc::ptr_eq(one, other));
        rules.iter().for_each(|rule| rule.record_call(handler, code, took));
    }

    /// Counts an instance that could not be built.
    pub(crate) fn add_unbuilt(&self, handler: &Arc<str>) {
        self.unbuilt.fetch_add(1, Relaxed);
        self.note_failure(handler, FailureCause::Instance);
    }

    fn note_failure(&self, handler: &Arc<str>, cause: FailureCause) {
        // Another failure at the same time is as good.
        if let Some(mut last) = self.last_failure.try_lock() {
            *last = Some(LastFailure { handler: handler.clone(), cause, at: Instant::now() });
        }
    }

    /// Returns the last failure of a call or an instance.
    pub fn last_failure(&self) -> Option<LastFailure> {
        self.last_failure.lock().clone()
    }
}

/// The counters of a handler.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct HandlerCounts {
    /// The calls.
    pub calls: CallMetrics,
    /// Calls that cached answers made unnecessary.
    pub cached: AtomicU64,
}

/// The counters that each use of a cached answer adds to.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerOrigin {
    pub(crate) matched: Vec<Arc<RuleCounts>>,
    pub(crate) denied: Vec<Arc<RuleCounts>>,
    pub(crate) called: Vec<Arc<HandlerCounts>>,
}

impl AnswerOrigin {
    /// Counts a use of the answer. Its rules have been counted already if they were `evaluated` for this request.
    pub(crate) fn count_use(&self, evaluated: bool) {
        for rule in self.matched.iter().filter(|_| !evaluated) {
            rule.matched.fetch_add(1, Relaxed);
            rule.cached.fetch_add(1, Relaxed);
        }
        for rule in &self.denied {
            rule.denied.fetch_add(1, Relaxed);
        }
        for handler in self.called.iter().filter(|_| !evaluated) {
            handler.cached.fetch_add(1, Relaxed);
        }
    }

    /// The approximate size of its references in bytes.
    pub(crate) fn size(&self) -> usize {
        (self.matched.len() + self.denied.len() + self.called.len()) * size_of::<usize>()
    }
}

/// The counters of an instance.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct InstanceCounts {
    /// Times that it was built.
    pub built: AtomicU64,
    /// Times that it could not be built.
    pub failed: AtomicU64,
    /// The requested amounts, if it is a quota.
    pub quota: QuotaCounts,
}

/// The use of a quota, as its handlers have answered.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct QuotaCounts {
    /// Requests for an amount.
    pub requests: AtomicU64,
    /// The number of requests that were granted less.
    pub refused: AtomicU64,
    /// The sum of the amounts requested.
    pub requested: AtomicU64,
    /// The sum of the amounts granted.
    pub granted: AtomicU64,
    /// The sum of the amounts given back.
    pub returned: AtomicU64,
    last_limit: Mutex<Option<LastLimit>>,
}

/// The last reported state of a limit, for one combination of dimensions.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LastLimit {
    /// The state.
    pub limit: Limit,
    /// When it was answered.
    pub at: Instant,
}

/// Adds an amount unless it is negative.
fn grow(sum: &AtomicU64, amount: i64) {
    let amount = u64::try_from(amount).unwrap_or(0);
    // The closure always returns a value.
    let _ = sum.fetch_update(Relaxed, Relaxed, |sum| Some(sum.saturating_add(amount)));
}

impl QuotaCounts {
    /// Counts an answer to a request of `amount`; a negative one was given back.
    pub(crate) fn add(&self, amount: i64, granted: i64, limit: Option<&Limit>) {
        if amount > 0 {
            self.requests.fetch_add(1, Relaxed);
            self.refused.fetch_add(u64::from(granted < amount), Relaxed);
            grow(&self.requested, amount);
            grow(&self.granted, granted);
        } else if amount < 0 {
            grow(&self.returned, granted);
        }
        // Another answer at the same time is as good.
        if let Some(limit) = limit
            && let Some(mut last) = self.last_limit.try_lock()
        {
            *last = Some(LastLimit { limit: *limit, at: Instant::now() });
        }
    }

    /// Returns the state of the limit in the last answer; `None` if adapters do not report it, or are not asked for it: only rate limits of
    /// Envoy do.
    pub fn last_limit(&self) -> Option<LastLimit> {
        self.last_limit.lock().clone()
    }
}

/// Counters by full name. They end with the last snapshot that uses them.
#[derive(Debug, Default)]
pub struct Counters<T> {
    named: Mutex<HashMap<Arc<str>, Weak<T>, RandomState>>,
    other: Arc<T>,
}

impl<T: Default> Counters<T> {
    /// Removes the counters that no snapshot uses.
    fn sweep(&self) {
        self.named.lock().retain(|_, counters| counters.strong_count() > 0);
    }

    /// Returns the counters of a name.
    pub(crate) fn of(&self, name: &Arc<str>) -> Arc<T> {
        let mut named = self.named.lock();
        if let Some(known) = named.get(name).and_then(Weak::upgrade) {
            return known;
        }
        if named.len() >= MAX_NAMES {
            return self.other.clone();
        }
        let counters = Arc::<T>::default();
        named.insert(name.clone(), Arc::downgrade(&counters));
        counters
    }

    /// Returns the counters in use, by name.
    pub fn all(&self) -> Vec<(Arc<str>, Arc<T>)> {
        let named = self.named.lock();
        let mut all: Vec<_> =
            named.iter().filter_map(|(name, counters)| Some((name.clone(), counters.upgrade()?))).collect();
        drop(named);
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        if Arc::strong_count(&self.other) > 1 {
            all.push((OTHER.into(), self.other.clone()));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Arc<str> {
        format!("r{number}.rule.ns").into()
    }

    #[test]
    fn counters_of_a_name_are_shared_while_they_are_used() {
        let counts = ResourceCounts::default();
        let first = counts.rules.of(&name(1));
        first.denied.fetch_add(1, Relaxed);
        let second = counts.rules.of(&name(1));
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        assert_eq!(counts.rules.all().len(), 1);
        drop(second);
        assert_eq!(counts.rules.all().len(), 0);
        assert_eq!(counts.rules.of(&name(1)).denied.load(Relaxed), 0);
    }

    #[test]
    fn the_use_of_a_quota_is_what_was_requested_granted_and_given_back() {
        let quota = QuotaCounts::default();
        let limit = |remaining| Limit { max_amount: 5, remaining, ..Limit::default() };
        for (amount, granted, remaining) in
            [(3, 3, Some(2)), (3, 0, Some(2)), (3, 2, None), (0, 0, None), (-2, 1, None)]
        {
            quota.add(amount, granted, remaining.map(limit).as_ref());
        }
        quota.add(i64::MAX, i64::MAX, None);
        quota.add(i64::MAX, i64::MAX, None);
        quota.add(i64::MAX, i64::MAX, None);
        let counts = [&quota.requests, &quota.refused, &quota.requested, &quota.granted, &quota.returned];
        assert_eq!(counts.map(|count| count.load(Relaxed)), [6, 2, u64::MAX, u64::MAX, 1]);
        assert_eq!(quota.last_limit().map(|last| last.limit), Some(limit(2)));
    }

    #[test]
    fn names_beyond_the_limit_share_counters() {
        let counts = ResourceCounts::default();
        let used: Vec<_> = (0..MAX_NAMES + 10).map(|number| counts.rules.of(&name(number))).collect();
        for counters in &used {
            counters.denied.fetch_add(1, Relaxed);
        }
        let all = counts.rules.all();
        assert_eq!(all.len(), MAX_NAMES + 1);
        let denied: Vec<u64> = all.iter().map(|(_, counters)| counters.denied.load(Relaxed)).collect();
        assert_eq!(denied.last(), Some(&10));
        assert_eq!(denied.iter().sum::<u64>(), used.len() as u64);
        drop((used, all));
        counts.sweep();
        let later: Vec<_> = (0..MAX_NAMES).map(|number| counts.rules.of(&name(MAX_NAMES + number))).collect();
        assert_eq!(counts.rules.all().len(), later.len());
    }
}
