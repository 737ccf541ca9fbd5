//! Counters of evaluations in the shadow.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::ShadowDifference;
use crate::resource_counts::OTHER;

/// Maximum number of rules with separate counters.
const MAX_RULES: usize = 500;

/// The counters of evaluations in one kind of shadow.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ShadowCounts {
    /// Evaluations with the same answer.
    pub same: AtomicU64,
    /// Evaluations with another answer, by [`ShadowDifference`].
    pub different: [AtomicU64; ShadowDifference::NAMES.len()],
    /// Requests that were not evaluated, because too many waited.
    pub dropped: AtomicU64,
    rules: Mutex<BTreeMap<Arc<str>, [u64; ShadowDifference::NAMES.len()]>>,
}

impl ShadowCounts {
    /// Counts an evaluation, and its difference for each rule.
    pub(super) fn add(&self, difference: Option<ShadowDifference>, rules: &[Arc<str>]) {
        let Some(difference) = difference else {
            self.same.fetch_add(1, Relaxed);
            return;
        };
        self.different[difference as usize].fetch_add(1, Relaxed);
        let mut counted = self.rules.lock();
        for rule in rules {
            let is_known = counted.len() < MAX_RULES || counted.contains_key(rule);
            let rule = if is_known { rule.clone() } else { OTHER.into() };
            counted.entry(rule).or_default()[difference as usize] += 1;
        }
    }

    /// Returns whether a request was evaluated or dropped.
    pub fn is_used(&self) -> bool {
        self.results().iter().any(|(_, count)| *count > 0)
    }

    /// Returns the numbers of requests by result.
    pub fn results(&self) -> [(&'static str, u64); ShadowDifference::NAMES.len() + 2] {
        let [allow, deny, status, failed] = ShadowDifference::NAMES;
        let [allowed, denied, other, failures] = &self.different;
        [
            ("same", &self.same),
            (allow, allowed),
            (deny, denied),
            (status, other),
            (failed, failures),
            ("dropped", &self.dropped),
        ]
        .map(|(result, count)| (result, count.load(Relaxed)))
    }

    /// Returns the numbers of differences by the full name of the rule, and by [`ShadowDifference`]. Beyond 500 rules, further ones are
    /// counted together as `other`.
    pub fn rules(&self) -> Vec<(Arc<str>, [u64; ShadowDifference::NAMES.len()])> {
        self.rules.lock().iter().map(|(rule, counts)| (rule.clone(), *counts)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted_for_each_rule_up_to_a_limit() {
        let counts = ShadowCounts::default();
        counts.add(None, &[]);
        for number in 0..MAX_RULES + 10 {
            let rules = ["first".into(), format!("r{number}").into()];
            counts.add(Some(ShadowDifference::WouldDeny), &rules);
        }
        let total = MAX_RULES as u64 + 10;
        assert_eq!(
            counts.results(),
            [
                ("same", 1),
                ("would_allow", 0),
                ("would_deny", total),
                ("other_status", 0),
                ("failed", 0),
                ("dropped", 0)
            ]
        );
        let rules = counts.rules();
        let denied = |name: &str| rules.iter().find(|(rule, _)| &**rule == name).map(|(_, counts)| counts[1]);
        assert_eq!((denied("first"), denied("r0")), (Some(total), Some(1)));
        assert_eq!(rules.len(), MAX_RULES + 1);
        assert_eq!(denied(OTHER), Some(11));
    }
}
