//! Descriptors and their results.

use std::sync::Arc;

use mixer_adapter_engine::{QuotaMode, dispatch::Allocation};

use super::limits::set_limit;
use crate::{
    decision_id::is_decision_id,
    proto::envoy::{
        extensions::common::ratelimit::v3::RateLimitDescriptor,
        service::ratelimit::v3::{
            RateLimitRequest,
            rate_limit_response::{Code, DescriptorStatus},
        },
    },
};

/// The entry that marks a call at the end of a request: its hits have happened and are counted even past the limit.
const PHASE: (&str, &str) = ("phase", "done");

/// The entry with the id of the decision on the request, which this server put into its metadata.
const DECISION_ID: &str = "decision_id";

/// Returns the value of an entry.
pub(super) fn entry<'d>(descriptor: &'d RateLimitDescriptor, key: &str) -> Option<&'d str> {
    descriptor.entries.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}

/// Returns the id of the decision on the request, if a descriptor has it.
pub(super) fn decision_id(request: &RateLimitRequest) -> Option<&str> {
    let ids = request.descriptors.iter().filter_map(|descriptor| entry(descriptor, DECISION_ID));
    ids.into_iter().find(|id| is_decision_id(id))
}

/// Returns whether a descriptor is sent at the end of a request.
pub(super) fn is_done(descriptor: &RateLimitDescriptor) -> bool {
    entry(descriptor, PHASE.0) == Some(PHASE.1)
}

/// Returns the amount of a descriptor; a negative one is given back. Hits of the descriptor's own may be 0; for those of the
/// request 0 means absent.
pub(super) fn amount(descriptor: &RateLimitDescriptor, hits: u32) -> i64 {
    let amount = match descriptor.hits_addend {
        Some(own) => i64::try_from(own).unwrap_or(i64::MAX),
        None => i64::from(hits.max(1)),
    };
    if descriptor.is_negative_hits { -amount } else { amount }
}

/// What was decided on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No quota matches.
    Unmatched,
    /// It is within the limit, or no decision.
    Within,
    /// It is over the limit of a quota with this mode.
    Over(QuotaMode),
}

/// The result of a descriptor.
#[derive(Debug)]
pub(crate) struct DescriptorResult {
    pub(crate) verdict: Verdict,
    /// The full name of the quota that decided.
    pub(crate) quota: Option<Arc<str>>,
    pub(super) status: DescriptorStatus,
    mode: QuotaMode,
    /// What is given back if another descriptor is refused.
    returnable: i64,
}

impl DescriptorResult {
    /// Evaluates the answer to a request of `amount`. Hits that have happened are no decision, and neither is what is given back.
    pub(super) fn new(allocation: Allocation, amount: i64, is_done: bool) -> Self {
        let settings = allocation.decided_by.as_ref().map(|quota| quota.settings).unwrap_or_default();
        let granted = allocation.answer.granted;
        let is_exhausted = || allocation.limit.as_ref().is_some_and(|limit| limit.remaining <= 0);
        let is_over = !is_done
            && match amount {
                0 => is_exhausted(),
                amount => amount > 0 && granted < amount,
            };
        let verdict = match () {
            () if is_over => Verdict::Over(settings.mode),
            () if allocation.matched => Verdict::Within,
            () => Verdict::Unmatched,
        };
        let returns = settings.all_or_nothing && amount > 0 && !is_done;
        let code = if verdict == Verdict::Over(QuotaMode::Enforce) { Code::OverLimit } else { Code::Ok };
        let mut result = Self {
            verdict,
            quota: allocation.decided_by.as_ref().map(|quota| quota.instance.clone()),
            status: DescriptorStatus { code: code.into(), ..DescriptorStatus::default() },
            mode: settings.mode,
            returnable: if returns { granted } else { 0 },
        };
        result.set_state(&allocation);
        result
    }

    /// Returns whether the request is refused because of this descriptor.
    pub(super) fn is_refused(&self) -> bool {
        self.verdict == Verdict::Over(QuotaMode::Enforce)
    }

    /// Returns the amount that is given back if the request is refused.
    pub(super) fn to_give_back(&self) -> i64 {
        self.returnable
    }

    /// Takes over the state after the hits were given back.
    pub(super) fn given_back(&mut self, allocation: &Allocation) {
        self.returnable = 0;
        self.set_state(allocation);
    }

    /// Clients see limits that have an effect; a trial is none.
    fn set_state(&mut self, allocation: &Allocation) {
        if let Some(limit) = allocation.limit.as_ref().filter(|_| self.mode != QuotaMode::Shadow) {
            set_limit(&mut self.status, limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use mixer_adapter_core::proto::istio::mixer::adapter::model::v1beta1::quota_result::Limit;
    use mixer_adapter_engine::{
        QuotaSettings,
        dispatch::{DecidingQuota, QuotaAnswer},
    };

    use super::*;

    fn granted(granted: i64, remaining: i64, mode: QuotaMode) -> Allocation {
        let settings = QuotaSettings { mode, all_or_nothing: true, ..QuotaSettings::default() };
        let minute = Some(prost_types::Duration { seconds: 60, nanos: 0 });
        Allocation {
            answer: QuotaAnswer { granted, ..QuotaAnswer::default() },
            decided_by: Some(DecidingQuota { instance: "per-user.instance.shop".into(), settings }),
            matched: true,
            limit: Some(Limit { max_amount: 10, remaining, window: minute, reset_after: minute }),
        }
    }

    #[test]
    fn hits_are_those_of_the_descriptor_else_of_the_request() {
        for (own, negative, request, expected) in [
            (None, false, 0, 1),
            (None, false, 5, 5),
            (Some(0), false, 5, 0),
            (Some(3), false, 5, 3),
            (Some(3), true, 5, -3),
            (None, true, 0, -1),
            (Some(u64::MAX), false, 0, i64::MAX),
            (Some(u64::MAX), true, 0, -i64::MAX),
        ] {
            let descriptor = RateLimitDescriptor {
                hits_addend: own,
                is_negative_hits: negative,
                ..RateLimitDescriptor::default()
            };
            assert_eq!(amount(&descriptor, request), expected, "{own:?} {negative} {request}");
        }
    }

    #[test]
    fn a_descriptor_is_over_its_limit_if_the_amount_is_not_granted() {
        for (given, remaining, amount, is_done, code) in [
            (1, 9, 1, false, Code::Ok),
            (0, 0, 1, false, Code::OverLimit),
            (0, 2, 5, false, Code::OverLimit),
            (0, 5, 0, false, Code::Ok),
            (0, 0, 0, false, Code::OverLimit),
            (0, 0, -5, false, Code::Ok),
            (5, 0, 5, true, Code::Ok),
            (0, 0, 5, true, Code::Ok),
        ] {
            let result =
                DescriptorResult::new(granted(given, remaining, QuotaMode::Enforce), amount, is_done);
            assert_eq!(result.status.code(), code, "{given} of {amount}");
            assert_eq!(result.is_refused(), code == Code::OverLimit, "{given} of {amount}");
        }
    }

    #[test]
    fn past_a_soft_limit_and_past_one_on_trial_requests_pass_and_only_the_soft_one_is_visible() {
        for (mode, code, is_visible) in [
            (QuotaMode::Enforce, Code::OverLimit, true),
            (QuotaMode::Soft, Code::Ok, true),
            (QuotaMode::Shadow, Code::Ok, false),
        ] {
            let result = DescriptorResult::new(granted(0, 0, mode), 1, false);
            assert_eq!((result.verdict, result.status.code()), (Verdict::Over(mode), code));
            assert_eq!(result.status.current_limit.is_some(), is_visible, "{mode:?}");
        }
    }

    #[test]
    fn what_was_taken_can_be_given_back_but_not_what_has_happened() {
        for (amount, given, is_done, returned) in
            [(5, 5, false, 5), (5, 5, true, 0), (5, 0, false, 0), (0, 0, false, 0), (-5, 3, false, 0)]
        {
            let result = DescriptorResult::new(granted(given, 1, QuotaMode::Enforce), amount, is_done);
            assert_eq!(result.to_give_back(), returned, "{amount} {is_done}");
        }
        let ignored = Allocation { decided_by: None, ..granted(5, 1, QuotaMode::Enforce) };
        assert_eq!(DescriptorResult::new(ignored, 5, false).to_give_back(), 0, "nothing was taken");
    }
}
