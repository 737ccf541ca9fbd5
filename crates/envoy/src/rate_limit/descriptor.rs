//! Descriptors and their results.

use std::sync::Arc;

use mixer_adapter_core::proto::istio::mixer::adapter::model::v1beta1::quota_result::Limit;
use mixer_adapter_engine::{
    QuotaMode,
    dispatch::{Allocation, QuotaGrant, TakenAmount},
    is_decision_id,
    proto::istio::mixer::v1::RouteDirective,
};

use super::limits::set_limit;
use crate::proto::envoy::{
    extensions::common::ratelimit::v3::RateLimitDescriptor,
    service::ratelimit::v3::{
        RateLimitRequest,
        rate_limit_response::{Code, DescriptorStatus},
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

/// Returns the amount of a descriptor; a negative one is given back. Hits in the descriptor may be 0; in the request, 0 means
/// absent.
pub(super) fn amount(descriptor: &RateLimitDescriptor, hits: u32) -> i64 {
    let amount = match descriptor.hits_addend {
        Some(own) => i64::try_from(own).unwrap_or(i64::MAX),
        None => i64::from(hits.max(1)),
    };
    if descriptor.is_negative_hits { -amount } else { amount }
}

/// The decision on a descriptor.
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
    /// The response in the form of the rule that refuses the request.
    pub(super) response: Option<RouteDirective>,
    grants: Vec<QuotaGrant>,
}

impl DescriptorResult {
    /// Evaluates the answer to a request of `amount`. Hits at the end of a request, and hits that are given back, are not decided on.
    pub(super) fn new(allocation: Allocation, amount: i64, is_done: bool) -> Self {
        let is_decision = !is_done && amount >= 0;
        let decided_by = allocation.decided_by();
        let over = decided_by.filter(|grant| grant.is_over_limit(amount)).map(|grant| grant.settings.mode);
        let verdict = match over {
            _ if is_decision && allocation.is_denied => Verdict::Over(QuotaMode::Enforce),
            Some(mode) if is_decision => Verdict::Over(mode),
            _ if allocation.matched => Verdict::Within,
            _ => Verdict::Unmatched,
        };
        let code = if verdict == Verdict::Over(QuotaMode::Enforce) { Code::OverLimit } else { Code::Ok };
        let mut result = Self {
            verdict,
            quota: decided_by.map(|quota| quota.instance.clone()),
            status: DescriptorStatus { code: code.into(), ..DescriptorStatus::default() },
            response: allocation.response,
            grants: allocation.grants,
        };
        result.set_state();
        result
    }

    /// Returns whether the request is refused because of this descriptor.
    pub(super) fn is_refused(&self) -> bool {
        self.verdict == Verdict::Over(QuotaMode::Enforce)
    }

    /// Replaces the state of the limit of a grant that was given back.
    pub(super) fn set_limit(&mut self, taken: &TakenAmount, limit: Option<Limit>) {
        let mut grants = self.grants.iter_mut();
        let given_back =
            grants.find(|grant| (&grant.handler, &grant.instance) == (taken.handler(), taken.instance()));
        if let Some(grant) = given_back {
            grant.limit = limit;
        }
        self.set_state();
    }

    /// Sets the state of the limit from the first grant. Clients see only limits with an effect, not trials.
    fn set_state(&mut self) {
        let visible = self.grants.iter().find(|grant| grant.settings.mode != QuotaMode::Shadow);
        if let Some(limit) = visible.and_then(|grant| grant.limit.as_ref()) {
            set_limit(&mut self.status, limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use mixer_adapter_engine::{QuotaSettings, dispatch::QuotaAnswer};

    use super::*;

    fn granted(granted: i64, remaining: i64, mode: QuotaMode) -> Allocation {
        let settings = QuotaSettings::default().mode(mode).all_or_nothing(true);
        let minute = Some(prost_types::Duration { seconds: 60, nanos: 0 });
        let answer = QuotaAnswer { granted, ..QuotaAnswer::default() };
        let grant = QuotaGrant {
            handler: "limits.handler.shop".into(),
            instance: "per-user.instance.shop".into(),
            settings,
            answer,
            limit: Some(Limit { max_amount: 10, remaining, window: minute, reset_after: minute }),
        };
        Allocation { answer, grants: vec![grant], matched: true, is_denied: false, response: None }
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
}
