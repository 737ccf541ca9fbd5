//! Counters by rule, handler and instance, with a bounded number of names.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use mixer_adapter_host::metrics::CallMetrics;

/// The name of the counters of all resources beyond the first 500 of a kind.
pub const OTHER: &str = "other";

/// Maximum number of resources of each kind with counters of their own.
const MAX_NAMES: usize = 500;

/// The counters of resources, which successive snapshots share.
#[derive(Debug, Default)]
pub struct ResourceCounts {
    rules: Counters<RuleCounts>,
    handlers: Counters<CallMetrics>,
    instances: Counters<InstanceCounts>,
}

/// The counters of a rule.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RuleCounts {
    /// Evaluations in which the condition matched.
    pub matched: AtomicU64,
    /// Denials by an action.
    pub denied: AtomicU64,
    /// Evaluations in which the condition could not be evaluated.
    pub failed: AtomicU64,
}

/// The counters of an instance.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct InstanceCounts {
    /// Times that it was built.
    pub built: AtomicU64,
    /// Times that it could not be built.
    pub failed: AtomicU64,
}

impl RuleCounts {
    pub(crate) fn add_match(&self) {
        self.matched.fetch_add(1, Relaxed);
    }

    pub(crate) fn add_denial(&self) {
        self.denied.fetch_add(1, Relaxed);
    }

    pub(crate) fn add_failure(&self) {
        self.failed.fetch_add(1, Relaxed);
    }
}

impl InstanceCounts {
    pub(crate) fn add(&self, is_built: bool) {
        let count = if is_built { &self.built } else { &self.failed };
        count.fetch_add(1, Relaxed);
    }
}

impl ResourceCounts {
    /// Returns the counters of all rules in use by full name.
    pub fn rules(&self) -> Vec<(Arc<str>, Arc<RuleCounts>)> {
        self.rules.all()
    }

    /// Returns the calls of all handlers in use by full name.
    pub fn handlers(&self) -> Vec<(Arc<str>, Arc<CallMetrics>)> {
        self.handlers.all()
    }

    /// Returns the counters of all instances in use by full name.
    pub fn instances(&self) -> Vec<(Arc<str>, Arc<InstanceCounts>)> {
        self.instances.all()
    }

    pub(crate) fn rule(&self, name: &Arc<str>) -> Arc<RuleCounts> {
        self.rules.of(name)
    }

    pub(crate) fn handler(&self, name: &Arc<str>) -> Arc<CallMetrics> {
        self.handlers.of(name)
    }

    pub(crate) fn instance(&self, name: &Arc<str>) -> Arc<InstanceCounts> {
        self.instances.of(name)
    }
}

/// Counters by name. They end with the last snapshot that uses them.
#[derive(Debug, Default)]
struct Counters<T> {
    named: Mutex<BTreeMap<Arc<str>, Weak<T>>>,
    other: Arc<T>,
}

impl<T: Default> Counters<T> {
    fn of(&self, name: &Arc<str>) -> Arc<T> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = named.get(name).and_then(Weak::upgrade) {
            return known;
        }
        if named.len() >= MAX_NAMES {
            named.retain(|_, counters| counters.strong_count() > 0);
        }
        if named.len() >= MAX_NAMES {
            return self.other.clone();
        }
        let counters = Arc::<T>::default();
        named.insert(name.clone(), Arc::downgrade(&counters));
        counters
    }

    fn all(&self) -> Vec<(Arc<str>, Arc<T>)> {
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> =
            named.iter().filter_map(|(name, counters)| Some((name.clone(), counters.upgrade()?))).collect();
        drop(named);
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
        let first = counts.rule(&name(1));
        first.add_denial();
        let second = counts.rule(&name(1));
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        assert_eq!(counts.rules().len(), 1);
        drop(second);
        assert_eq!(counts.rules().len(), 0);
        assert_eq!(counts.rule(&name(1)).denied.load(Relaxed), 0);
    }

    #[test]
    fn names_beyond_the_limit_share_counters() {
        let counts = ResourceCounts::default();
        let used: Vec<_> = (0..MAX_NAMES + 10).map(|number| counts.rule(&name(number))).collect();
        for counters in &used {
            counters.add_denial();
        }
        let all = counts.rules();
        assert_eq!(all.len(), MAX_NAMES + 1);
        let denied: Vec<u64> = all.iter().map(|(_, counters)| counters.denied.load(Relaxed)).collect();
        assert_eq!(denied.last(), Some(&10));
        assert_eq!(denied.iter().sum::<u64>(), used.len() as u64);
        drop((used, all));
        let later: Vec<_> = (0..MAX_NAMES).map(|number| counts.rule(&name(MAX_NAMES + number))).collect();
        assert_eq!(counts.rules().len(), later.len());
    }
}
