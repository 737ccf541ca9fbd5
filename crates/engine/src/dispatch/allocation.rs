//! Quota requests and their answers.

use std::sync::Arc;

use crate::{proto::istio::mixer::v1::RouteDirective, quota_settings::QuotaSettings};
use mixer_adapter_core::{
    adapter::LimitOverride, proto::istio::mixer::adapter::model::v1beta1::quota_result::Limit,
};

/// A quota request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaRequest<'a> {
    /// The short name of a quota instance, in any letter case.
    pub name: &'a str,
    /// Identifies the request, so that a retry is counted once.
    pub dedup_id: &'a str,
    /// The amount requested.
    pub amount: i64,
    /// Whether a part of the amount may be granted.
    pub best_effort: bool,
}

/// A granted quota.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QuotaAnswer {
    /// The amount granted by the adapter.
    pub granted: i64,
    /// The duration of validity.
    pub valid_duration: prost_types::Duration,
}

/// A quota request in which a failure differs from a refusal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// The merged grant.
    pub answer: QuotaAnswer,
    /// The grants of the handlers. The first one decides.
    pub grants: Vec<QuotaGrant>,
    /// Whether a quota is configured and its rule matches, or the policy denies the request.
    pub matched: bool,
    /// Whether the policy denies the request, whatever its amount: because of a failure, or of a quota that no rule has.
    pub is_denied: bool,
    /// The response to a [strict](super::Request::strict) request that is refused, in the form of its rule. The caller chooses the
    /// status.
    pub response: Option<RouteDirective>,
}

impl Allocation {
    /// Returns the grant that decided on the request. Without one (no quota is configured, no rule matches, or a failure is ignored),
    /// the amount is granted in full unless it is denied.
    pub fn decided_by(&self) -> Option<&QuotaGrant> {
        self.grants.first().filter(|_| !self.is_denied)
    }
}

/// The grant of a handler.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaGrant {
    /// The full name of the handler.
    pub handler: Arc<str>,
    /// The full name of the instance.
    pub instance: Arc<str>,
    /// The settings of the instance.
    pub settings: QuotaSettings,
    /// The grant.
    pub answer: QuotaAnswer,
    /// The state of the limit, if the adapter reports it.
    pub limit: Option<Limit>,
}

impl QuotaGrant {
    /// Returns whether a request of `amount` exceeds the limit: less is granted, or nothing remains for a request of 0. A negative
    /// amount never does.
    pub fn is_over_limit(&self, amount: i64) -> bool {
        match amount {
            0 => self.limit.as_ref().is_some_and(|limit| limit.remaining <= 0),
            amount => amount > 0 && self.answer.granted < amount,
        }
    }

    /// Orders the grants of one request: by the mode of grants over their limits, then by the amount, then by the remaining amount.
    pub(super) fn precedence(&self, amount: i64) -> impl Ord + use<> {
        let mode = self.is_over_limit(amount).then_some(self.settings.mode);
        let remaining = self.limit.as_ref().map_or(i64::MAX, |limit| limit.remaining);
        (mode.is_none(), mode, self.answer.granted, remaining)
    }
}

/// How a quota is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationMode {
    /// Request the state of the limit, too. An amount of 0 requests nothing else.
    pub report_limit: bool,
    /// Count the amount even past the limit.
    pub past_limit: bool,
    /// Replaces the configured limit, up to the maximum in the settings of the quota.
    pub limit: Option<LimitOverride>,
}
