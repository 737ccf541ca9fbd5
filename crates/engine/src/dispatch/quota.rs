//! Quota allocation after an allowed check (docs/behaviour/dispatch.md#quota).

use std::{collections::BTreeSet, sync::Arc};

use prost::Message as _;

use super::{
    DispatchError, FailureTexts, Request,
    calls::{CompletedCall, call_all},
    merge::{DEFAULT_DURATION, FAILED_DURATION},
    plan::{Conditions, PlannedCall},
};
use crate::{
    handler::QuotaParams,
    instance::Instance,
    limits::LimitError,
    policy::{FailureEffect, OnUnknownQuota, fatal},
    quota_settings::{QuotaMode, QuotaSettings},
    trace::{Phase, Step},
};
use mixer_adapter_core::{
    adapter::LimitOverride,
    framework::{log_limit::LogLimit, suggest::suggest},
    proto::{QuotaResult, istio::mixer::adapter::model::v1beta1::quota_result::Limit},
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
    /// The grant.
    pub answer: QuotaAnswer,
    /// The quota whose adapter decided. If there is none, because no quota is configured or no rule matches, or because a failure is
    /// ignored, the amount is granted in full.
    pub decided_by: Option<DecidingQuota>,
    /// Whether a quota is configured and its rule matches, or the policy denies those that are not configured.
    pub matched: bool,
    /// The state of the limit, if the adapter reports it.
    pub limit: Option<Limit>,
}

/// The quota that decided on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecidingQuota {
    /// The full name of the instance.
    pub instance: Arc<str>,
    /// Its settings.
    pub settings: QuotaSettings,
}

/// How a quota is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationMode {
    /// Request the state of the limit, too. An amount of 0 requests nothing else.
    pub report_limit: bool,
    /// Count the amount even past the limit.
    pub past_limit: bool,
    /// A limit in place of the configured one, as far as the settings of the quota permit it.
    pub limit: Option<LimitOverride>,
}

impl<'s> Request<'s> {
    /// Requests a quota. One that is not configured, or whose rule does not match, is granted in full for a minute.
    /// The first of several handlers to respond wins. If an instance cannot be built or an adapter fails, nothing is
    /// granted, unless the failure policy is open.
    ///
    /// # Errors
    /// The instances exceed the limits of the call.
    pub async fn quota(&mut self, request: QuotaRequest<'_>) -> Result<QuotaAnswer, LimitError> {
        match self.allocate(request, AllocationMode::default()).await {
            Ok(allocation) => Ok(allocation.answer),
            Err(DispatchError::Limit(error)) => Err(error),
            Err(error) => {
                static LIMIT: LogLimit = LogLimit::new();
                if let Some(suppressed) = LIMIT.admit() {
                    tracing::warn!(quota = request.name, %error, suppressed, "no quota granted");
                }
                Ok(QuotaAnswer::default())
            }
        }
    }

    /// Requests a quota as [`quota`](Self::quota) does. In a [`strict`](Self::strict) request rules that do not match change
    /// nothing, and of several handlers the lowest grant wins, whichever responds first.
    ///
    /// # Errors
    /// Failures, unless the failure policy ignores or denies them. A failure that it denies is a grant of nothing.
    pub async fn allocate(
        &mut self,
        request: QuotaRequest<'_>,
        mode: AllocationMode,
    ) -> Result<Allocation, DispatchError> {
        self.budget.add_attributes(request.dedup_id.len())?;
        self.references.clear_after();
        // A cached check answer did not run the generators.
        if !self.generated {
            self.generate().await.map_err(|error| error.within("preprocessing attributes failed"))?;
        }
        let snapshot = self.snapshot;
        let in_full = QuotaAnswer { granted: request.amount, valid_duration: DEFAULT_DURATION };
        let mut answer: Option<QuotaAnswer> = None;
        let mut found = false;
        let mut names: BTreeSet<&'s str> = BTreeSet::new();
        let mut planned: Vec<PlannedCall<'s>> = Vec::new();
        let mut conditions = Conditions::of(snapshot.quotas.of(&self.namespace));
        let is_strict = self.is_strict;
        let mut planner = self.planner(false);
        for conditions in &mut conditions {
            let asked_for = |entry: &'s crate::rules::Entry, matched: bool| {
                let asked_for = entry.short_name().eq_ignore_ascii_case(request.name);
                names.insert(entry.short_name());
                found |= asked_for;
                if asked_for && !matched && !is_strict {
                    answer = Some(in_full);
                }
                asked_for
            };
            planner.plan(Phase::Quota, conditions, asked_for, |call| planned.push(call))?;
        }
        if planner.uncalled && planned.is_empty() {
            answer = Some(in_full);
        }
        let mut failures = std::mem::take(&mut planner.failures);
        let is_denied = !found && self.policy.unknown_quota == OnUnknownQuota::Deny;
        if !found {
            self.unknown_quotas += 1;
            let granted = if is_denied { QuotaAnswer { granted: 0, ..in_full } } else { in_full };
            tracing::debug!(quota = request.name, granted = granted.granted, "no rule has this quota");
            answer = Some(granted);
            if let Some(trace) = &mut self.trace {
                let similar = suggest(request.name, names).map(str::to_owned);
                let quota = request.name.to_owned();
                trace.steps.push(Step::UnknownQuota { quota, similar, granted: !is_denied });
            }
        }
        let params = QuotaParams {
            name: request.name,
            instance: "",
            dedup_id: request.dedup_id,
            amount: request.amount,
            best_effort: request.best_effort,
            report_limit: mode.report_limit,
            past_limit: mode.past_limit,
            limit: mode.limit,
        };
        let matched = !planned.is_empty() || is_denied;
        let (mut limit, mut decided_by) = (None, None);
        for answered in call_all(planned, Some(params), &self.caller).await {
            match self.granted(&answered) {
                Ok((granted, state))
                    if answer.is_none_or(|answer| match is_strict {
                        true => rest(&granted, state.as_ref()) < rest(&answer, limit.as_ref()),
                        false => answer == QuotaAnswer::default(),
                    }) =>
                {
                    (answer, limit) = (Some(granted), state);
                    let Instance { name, quota, .. } = &*answered.planned.entry.instance;
                    decided_by = Some(DecidingQuota { instance: name.clone(), settings: *quota });
                }
                Ok(_) => {}
                Err(status) => failures.push(self.failure(answered.handler(), &status)),
            }
        }
        let is_failed = failures.iter().any(|failure| !matches!(failure, FailureEffect::Ignore));
        if is_failed {
            decided_by = None;
        }
        let answer = match answer.filter(|_| !is_failed) {
            Some(answer) => answer,
            // All calls have failed, which is ignored.
            None if !is_failed => QuotaAnswer { valid_duration: FAILED_DURATION, ..in_full },
            None => QuotaAnswer::default(),
        };
        if let Some(trace) = &mut self.trace {
            let reason = match &decided_by {
                None if found && !matched && failures.is_empty() => ": no rule of the quota matches",
                Some(DecidingQuota { settings: QuotaSettings { mode: QuotaMode::Soft, .. }, .. }) => {
                    "; behind Envoy, requests past the limit pass (soft)"
                }
                Some(DecidingQuota { settings: QuotaSettings { mode: QuotaMode::Shadow, .. }, .. }) => {
                    "; behind Envoy, requests past the limit pass (shadow)"
                }
                _ => "",
            };
            let QuotaRequest { name, amount, .. } = request;
            let outcome = format!("quota {name}: granted {} of {amount}{reason}", answer.granted);
            trace.steps.push(Step::Merged { outcome });
        }
        let failures: FailureTexts = fatal(&failures).into_iter().collect();
        match failures.is_empty() {
            true => Ok(Allocation { answer, decided_by, matched, limit }),
            false => Err(failures.into()),
        }
    }

    /// Returns the adapter's grant; an error if it failed or responded for another instance.
    fn granted(
        &mut self,
        answered: &CompletedCall<'_>,
    ) -> Result<(QuotaAnswer, Option<Limit>), tonic::Status> {
        let instance = &*answered.planned.entry.instance.name;
        let result = answered.answer.clone().and_then(|bytes| {
            let result = QuotaResult::decode(bytes)
                .map_err(|error| tonic::Status::internal(format!("the answer cannot be decoded: {error}")))?;
            result.quotas.get(instance).cloned().ok_or_else(|| {
                let answered: Vec<&String> = result.quotas.keys().collect();
                tonic::Status::internal(format!(
                    "no grant for `{instance}` in the answer, only for {answered:?}"
                ))
            })
        });
        let outcome = result.as_ref().map(|result| {
            || {
                serde_json::json!({
                    "granted_amount": result.granted_amount,
                    "valid_duration": result.valid_duration.unwrap_or_default().to_string(),
                })
            }
        });
        answered.trace(self.trace.as_deref_mut(), outcome);
        match result {
            Ok(result) => {
                let valid_duration = result.valid_duration.unwrap_or_default();
                Ok((QuotaAnswer { granted: result.granted_amount, valid_duration }, result.limit))
            }
            Err(status) => {
                // A failed call is logged where it is made.
                static LIMIT: LogLimit = LogLimit::new();
                if answered.answer.is_ok()
                    && let Some(suppressed) = LIMIT.admit()
                {
                    let (handler, error) = (answered.handler(), status.message());
                    tracing::warn!(handler, instance, error, suppressed, "invalid answer to a quota call");
                }
                Err(status)
            }
        }
    }
}

/// Orders grants of one request by the amount, and those of nothing by what remains.
fn rest(answer: &QuotaAnswer, limit: Option<&Limit>) -> (i64, i64) {
    (answer.granted, limit.map_or(i64::MAX, |limit| limit.remaining))
}
