use std::time::Duration;

/// The limits on the reuse of an answer, by the annotations of the rules it comes from. The default applies without rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachePolicy {
    /// Maximum duration of validity.
    pub(crate) max_age: Duration,
    /// The time after its expiry during which the answer may be used if a backend is down.
    pub(crate) stale_if_error: Duration,
}

impl CachePolicy {
    /// The policy of a rule without annotations.
    pub(crate) const OF_RULE: Self = Self { max_age: Duration::MAX, stale_if_error: Duration::ZERO };

    /// Restricts the policy by another rule's.
    pub(crate) fn restrict(&mut self, other: Self) {
        self.max_age = self.max_age.min(other.max_age);
        self.stale_if_error = self.stale_if_error.min(other.stale_if_error);
    }
}

impl Default for CachePolicy {
    fn default() -> Self {
        Self { max_age: Duration::MAX, stale_if_error: Duration::MAX }
    }
}
