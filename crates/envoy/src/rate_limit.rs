//! `envoy.service.ratelimit.v3.RateLimitService`: requests quotas for descriptors (docs/envoy.md#rate-limits).

use mixer_adapter_core::{
    framework::log_limit::LogLimit, proto::istio::mixer::adapter::model::v1beta1::quota_result::Limit,
};
use mixer_adapter_engine::{
    Budget, Snapshot,
    dispatch::{Allocation, AllocationMode, Caller, DispatchError, QuotaRequest, Request},
};
use tonic::Status;

use crate::{
    Services,
    attributes::{AttributeError, descriptor_attributes},
    counters::RateLimitOutcome,
    metadata::quota_metadata,
    proto::envoy::{
        extensions::common::ratelimit::v3::RateLimitDescriptor,
        service::ratelimit::v3::{
            RateLimitRequest, RateLimitResponse,
            rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
        },
    },
};

/// The entry of a descriptor that names a quota in place of the domain.
const QUOTA: &str = "quota";

/// The entry that marks a call at the end of a request: its hits have happened and are counted even past the limit.
const PHASE: (&str, &str) = ("phase", "done");

/// The entry with the id of the decision on the request, which this server put into its metadata.
const DECISION_ID: &str = "decision_id";

/// A rate limit that could not be determined.
#[derive(Debug, thiserror::Error)]
enum RateLimitError {
    #[error("there is no configuration yet")]
    NoConfiguration,
    #[error(transparent)]
    Attributes(#[from] AttributeError),
    #[error(transparent)]
    Quota(#[from] DispatchError),
}

impl Services {
    /// Requests the quotas of all descriptors.
    ///
    /// # Errors
    /// UNAVAILABLE if one of them could not be requested: a response without a decision would let the request pass.
    pub async fn should_rate_limit(
        &self,
        request: RateLimitRequest,
        caller: Caller,
    ) -> Result<RateLimitResponse, Status> {
        let answer = self.limit(&request, &caller).await;
        let outcome = match &answer {
            Err(error) => {
                static LIMIT: LogLimit = LogLimit::new();
                if let Some(suppressed) = LIMIT.admit() {
                    tracing::warn!(
                        peer = %caller.peer_name(),
                        domain = request.domain,
                        %error,
                        suppressed,
                        "a rate limit could not be determined"
                    );
                }
                RateLimitOutcome::Failed
            }
            Ok(statuses) if statuses.iter().all(|(_, matched)| !matched) => RateLimitOutcome::Unmatched,
            Ok(statuses) if overall(statuses) == Code::OverLimit => RateLimitOutcome::OverLimit,
            Ok(_) => RateLimitOutcome::Ok,
        };
        self.counters.rate_limit(outcome);
        let statuses = answer.map_err(|error| Status::unavailable(error.to_string()))?;
        let entries = request.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
        self.missing.note_rate_limit(entries.clone().any(|entry| entry.key == DECISION_ID));
        let id = entries.into_iter().find(|entry| entry.key == DECISION_ID).map(|entry| entry.value.clone());
        Ok(RateLimitResponse {
            overall_code: overall(&statuses).into(),
            statuses: statuses.into_iter().map(|(status, _)| status).collect(),
            dynamic_metadata: Some(quota_metadata(&id.unwrap_or_else(|| self.ids.next()))),
            ..RateLimitResponse::default()
        })
    }

    /// Returns the status of each descriptor, and whether a quota matched it.
    async fn limit(
        &self,
        request: &RateLimitRequest,
        caller: &Caller,
    ) -> Result<Vec<(DescriptorStatus, bool)>, RateLimitError> {
        let snapshot =
            self.configuration.snapshot(caller.deadline).await.ok_or(RateLimitError::NoConfiguration)?;
        let mut budget = Budget::new(self.mixer.limits());
        let mut statuses = Vec::with_capacity(request.descriptors.len());
        for descriptor in &request.descriptors {
            statuses.push(self.descriptor(&snapshot, request, descriptor, caller, &mut budget).await?);
        }
        Ok(statuses)
    }

    async fn descriptor(
        &self,
        snapshot: &Snapshot,
        request: &RateLimitRequest,
        descriptor: &RateLimitDescriptor,
        caller: &Caller,
        budget: &mut Budget,
    ) -> Result<(DescriptorStatus, bool), RateLimitError> {
        let (namespace, domain) = match request.domain.split_once('/') {
            Some((namespace, domain)) => (Some(namespace), domain),
            None => (None, request.domain.as_str()),
        };
        let entry = |key: &str| {
            descriptor.entries.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
        };
        let bag = descriptor_attributes(&request.domain, namespace, descriptor, snapshot.vocabulary())?;
        let amount = amount(descriptor, request.hits_addend);
        let is_done = entry(PHASE.0) == Some(PHASE.1);
        let mut quota = Request::new(snapshot, bag, caller.clone(), false).with_budget(*budget).strict();
        let allocation = quota
            .allocate(
                QuotaRequest {
                    name: entry(QUOTA).unwrap_or(domain),
                    dedup_id: &self.ids.next(),
                    amount,
                    best_effort: false,
                },
                AllocationMode { report_limit: true, past_limit: is_done },
            )
            .await;
        self.mixer.counts().condition_errors(quota.condition_errors());
        self.mixer.counts().unknown_quotas(quota.unknown_quotas());
        *budget = quota.budget();
        let allocation = allocation?;
        self.mixer.counts().quota(allocation.answer.granted, amount);
        Ok((status(&allocation, amount, is_done), allocation.matched))
    }
}

fn overall(statuses: &[(DescriptorStatus, bool)]) -> Code {
    match statuses.iter().any(|(status, _)| status.code() == Code::OverLimit) {
        true => Code::OverLimit,
        false => Code::Ok,
    }
}

/// Returns the amount of a descriptor; a negative one is given back. Hits of the descriptor's own may be 0; for those of the
/// request 0 means absent.
fn amount(descriptor: &RateLimitDescriptor, hits: u32) -> i64 {
    let amount = match descriptor.hits_addend {
        Some(own) => i64::try_from(own).unwrap_or(i64::MAX),
        None => i64::from(hits.max(1)),
    };
    if descriptor.is_negative_hits { -amount } else { amount }
}

/// Returns the status of a descriptor. Hits that have happened are no decision, and neither is what is given back.
fn status(allocation: &Allocation, amount: i64, is_done: bool) -> DescriptorStatus {
    let is_exhausted = || allocation.limit.as_ref().is_some_and(|limit| limit.remaining <= 0);
    let is_over = !is_done
        && match amount {
            0 => is_exhausted(),
            amount => amount > 0 && allocation.answer.granted < amount,
        };
    let mut status = DescriptorStatus {
        code: if is_over { Code::OverLimit } else { Code::Ok }.into(),
        ..DescriptorStatus::default()
    };
    if let Some(limit) = &allocation.limit {
        status.current_limit = current_limit(limit);
        status.limit_remaining = clamped(limit.remaining);
        status.duration_until_reset = limit.reset_after.map(in_seconds);
    }
    status
}

/// Rounds up to whole seconds: Envoy truncates, and after a shorter time the limit still applies.
fn in_seconds(duration: prost_types::Duration) -> prost_types::Duration {
    prost_types::Duration { seconds: duration.seconds + i64::from(duration.nanos > 0), nanos: 0 }
}

/// The seconds of the units, the longest first.
const UNITS: [(i64, Unit); 7] = [
    (31_536_000, Unit::Year),
    (2_592_000, Unit::Month),
    (604_800, Unit::Week),
    (86_400, Unit::Day),
    (3_600, Unit::Hour),
    (60, Unit::Minute),
    (1, Unit::Second),
];

/// Returns a limit in the longest unit of which its window is a multiple; `None` without a window.
fn current_limit(limit: &Limit) -> Option<RateLimit> {
    let window = in_seconds(limit.window?).seconds;
    let (seconds, unit) = UNITS.into_iter().find(|(seconds, _)| window > 0 && window % seconds == 0)?;
    let multiplier = clamped(window / seconds);
    Some(RateLimit {
        name: String::new(),
        requests_per_unit: clamped(limit.max_amount),
        unit: unit.into(),
        unit_multiplier: (multiplier > 1).then_some(multiplier),
    })
}

fn clamped(amount: i64) -> u32 {
    u32::try_from(amount.max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mixer_adapter_engine::dispatch::QuotaAnswer;

    fn limited(remaining: i64, window: i64, reset_after: (i64, i32)) -> Limit {
        let (seconds, nanos) = reset_after;
        Limit {
            max_amount: 10,
            remaining,
            window: Some(prost_types::Duration { seconds: window, nanos: 0 }),
            reset_after: Some(prost_types::Duration { seconds, nanos }),
        }
    }

    fn granted(granted: i64, remaining: i64) -> Allocation {
        Allocation {
            answer: QuotaAnswer { granted, ..QuotaAnswer::default() },
            matched: true,
            limit: Some(limited(remaining, 60, (30, 1))),
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
        for (allocation, amount, is_done, code) in [
            (granted(1, 9), 1, false, Code::Ok),
            (granted(0, 0), 1, false, Code::OverLimit),
            (granted(0, 2), 5, false, Code::OverLimit),
            (granted(0, 5), 0, false, Code::Ok),
            (granted(0, 0), 0, false, Code::OverLimit),
            (granted(0, 0), -5, false, Code::Ok),
            (granted(0, 0), 5, true, Code::Ok),
        ] {
            assert_eq!(status(&allocation, amount, is_done).code(), code, "{amount} of {allocation:?}");
        }
    }

    #[test]
    fn a_status_has_the_limit_the_rest_and_the_time_until_a_reset() {
        let status = status(&granted(1, 9), 1, false);
        let limit = status.current_limit.unwrap_or_default();
        assert_eq!((limit.requests_per_unit, limit.unit(), limit.unit_multiplier), (10, Unit::Minute, None));
        assert_eq!(status.limit_remaining, 9);
        assert_eq!(status.duration_until_reset.unwrap_or_default().seconds, 31);
    }

    #[test]
    fn a_window_is_a_multiple_of_the_longest_unit() {
        for (window, unit, multiplier) in [
            (1, Unit::Second, None),
            (90, Unit::Second, Some(90)),
            (300, Unit::Minute, Some(5)),
            (3_600, Unit::Hour, None),
            (172_800, Unit::Day, Some(2)),
            (604_800, Unit::Week, None),
            (31_536_000, Unit::Year, None),
        ] {
            let limit = current_limit(&limited(1, window, (1, 0))).unwrap_or_default();
            assert_eq!((limit.unit(), limit.unit_multiplier), (unit, multiplier), "{window}");
        }
        assert_eq!(current_limit(&Limit { window: None, ..limited(1, 1, (1, 0)) }), None);
    }
}
