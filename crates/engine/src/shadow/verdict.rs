//! Outcomes of requests, and differences between them.

use std::sync::Arc;

use super::ShadowKind;
use crate::{
    answer::CheckAnswer, counts::CheckOutcome, dispatch::DispatchError, failed_part::FailedParts,
    resource_counts::OTHER,
};
use tonic::Code;

/// A difference between the answer to a request and its evaluation in the shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShadowDifference {
    /// The request was denied, and would have been allowed.
    WouldAllow,
    /// The request was allowed or failed, and would have been denied.
    WouldDeny,
    /// The request was denied, and would have been denied with another status.
    OtherStatus,
    /// The evaluation failed or took too long.
    Failed,
}

impl ShadowDifference {
    /// The names of the differences by discriminant.
    pub const NAMES: [&str; 4] = ["would_allow", "would_deny", "other_status", "failed"];

    /// Returns the name of the difference.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Compares outcomes. Actions in the shadow add to the rules in use, so that they matter only to allowed requests.
    pub(super) fn between(kind: ShadowKind, live: Outcome, shadow: Outcome) -> Option<Self> {
        if kind == ShadowKind::Rules && live != Outcome::Allowed {
            return None;
        }
        match (live, shadow) {
            _ if live == shadow => None,
            (_, Outcome::Failed) => Some(Self::Failed),
            (_, Outcome::Allowed) => Some(Self::WouldAllow),
            (Outcome::Denied(_), Outcome::Denied(_)) => Some(Self::OtherStatus),
            (_, Outcome::Denied(_)) => Some(Self::WouldDeny),
        }
    }
}

/// The outcome of a check or a quota request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Allowed,
    /// With this code.
    Denied(i32),
    Failed,
}

impl Outcome {
    /// Returns the outcome of a quota request by the amounts granted and requested.
    fn of_quota(granted: i64, requested: i64) -> Self {
        if granted < requested { Self::Denied(Code::ResourceExhausted as i32) } else { Self::Allowed }
    }

    pub(super) fn name(self) -> &'static str {
        let outcome = match self {
            Self::Allowed => CheckOutcome::Allowed,
            Self::Denied(_) => CheckOutcome::Denied,
            Self::Failed => CheckOutcome::Failed,
        };
        CheckOutcome::NAMES[outcome as usize]
    }
}

/// An outcome with the rules that decided.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) outcome: Outcome,
    /// The reason of a denial or a failure.
    pub(super) message: String,
    pub(super) rules: Vec<Arc<str>>,
    pub(super) failed: FailedParts,
}

impl Verdict {
    /// The verdict of a check.
    pub(super) fn of_check(answer: &Result<CheckAnswer, DispatchError>, failed: FailedParts) -> Self {
        let (outcome, message) = match answer {
            Ok(answer) if answer.status.code == 0 => (Outcome::Allowed, String::new()),
            Ok(answer) => (Outcome::Denied(answer.status.code), answer.status.message.clone()),
            Err(error) => (Outcome::Failed, error.to_string()),
        };
        let rules = answer.as_ref().map_or_else(|_| Vec::new(), |answer| answer.details.rules.clone());
        Self { outcome, message, rules, failed }
    }

    /// The verdict of a quota request, by the amount granted or the reason of its failure. `rules` granted less than the amount.
    pub(super) fn of_quota(
        granted: Option<i64>,
        requested: i64,
        failure: String,
        rules: Vec<Arc<str>>,
        failed: FailedParts,
    ) -> Self {
        let (outcome, message) = match granted {
            Some(granted) => (Outcome::of_quota(granted, requested), String::new()),
            None => (Outcome::Failed, failure),
        };
        Self { outcome, message, rules, failed }
    }

    /// The verdict of an evaluation that took too long.
    pub(super) fn late() -> Self {
        let message = "the evaluation took too long".to_owned();
        Self { outcome: Outcome::Failed, message, rules: Vec::new(), failed: FailedParts::NONE }
    }

    /// The rules that decided, or whose parts failed.
    fn decided_by(&self) -> Vec<Arc<str>> {
        if !self.rules.is_empty() {
            return self.rules.clone();
        }
        let mut rules: Vec<Arc<str>> = self.failed.list().iter().map(|part| part.rule.clone()).collect();
        rules.sort();
        rules.dedup();
        rules
    }

    /// The rules to which a difference from `live` is due: the denying rules of the shadow or, if it allows, the denying rules of the answer.
    pub(super) fn responsible(&self, live: &Self) -> Vec<Arc<str>> {
        let decided = if self.outcome == Outcome::Allowed { live } else { self };
        let rules = decided.decided_by();
        if rules.is_empty() { vec![OTHER.into()] } else { rules }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_another_outcome_or_status_and_rules_in_the_shadow_only_deny() {
        use Outcome::{Allowed, Denied, Failed};
        let cases = [
            (Allowed, Allowed, None, None),
            (Allowed, Denied(7), Some(ShadowDifference::WouldDeny), Some(ShadowDifference::WouldDeny)),
            (Allowed, Failed, Some(ShadowDifference::Failed), Some(ShadowDifference::Failed)),
            (Denied(7), Allowed, Some(ShadowDifference::WouldAllow), None),
            (Denied(7), Denied(7), None, None),
            (Denied(7), Denied(16), Some(ShadowDifference::OtherStatus), None),
            (Denied(7), Failed, Some(ShadowDifference::Failed), None),
            (Failed, Failed, None, None),
            (Failed, Allowed, Some(ShadowDifference::WouldAllow), None),
            (Failed, Denied(7), Some(ShadowDifference::WouldDeny), None),
        ];
        for (live, shadow, of_configuration, of_rules) in cases {
            let between = |kind| ShadowDifference::between(kind, live, shadow);
            assert_eq!(between(ShadowKind::Configuration), of_configuration, "{live:?} {shadow:?}");
            assert_eq!(between(ShadowKind::Rules), of_rules, "{live:?} {shadow:?}");
        }
    }
}
