//! Quota allocation after an allowed check (docs/behaviour/dispatch.md#quota).

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Allocation, AllocationMode, DispatchError, FailureTexts, QuotaAnswer, QuotaGrant, QuotaRequest, Request,
    TakenAmount,
    calls::{CompletedCall, for_each_call},
    merge::{DEFAULT_DURATION, FAILED_DURATION},
    plan::{Conditions, PlannedCall},
    taken::decode,
};
use crate::{
    handler::QuotaParams,
    instance::Instance,
    limits::LimitError,
    policy::{FailureEffect, OnUnknownQuota, fatal},
    quota_settings::QuotaMode,
    trace::{Phase, Step},
};
use mixer_adapter_core::{
    framework::{log_limit::LogLimit, suggest::suggest},
    proto::istio::mixer::adapter::model::v1beta1::quota_result,
};
use tonic::Status;

/// The calls for a quota.
#[derive(Default)]
struct QuotaPlan<'s> {
    calls: Vec<PlannedCall<'s>>,
    failures: Vec<FailureEffect>,
    /// The short names of all quotas that apply to the request.
    names: BTreeSet<&'s str>,
    /// Whether a rule has the quota.
    found: bool,
    /// Whether a rule that has the quota does not match.
    unmatched: bool,
    /// Whether a call was skipped because its handler is not called.
    uncalled: bool,
}

impl<'s> Request<'s> {
    /// Requests a quota. One that is not configured, or whose rule does not match, is granted in full for a minute.
    /// The first of several handlers to respond wins. If an instance cannot be built or an adapter fails, nothing is
    /// granted, unless the failure policy is open.
    ///
    /// # Errors
    /// The instances exceed the limits of the call.
    pub async fn quota(&mut self, request: QuotaRequest<'_>) -> Result<QuotaAnswer, LimitError> {
        match self.allocate(request, AllocationMode::default(), |_| {}).await {
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
    /// nothing. Of several handlers the lowest grant wins there, whichever responds first, and before all a grant below the amount of a
    /// quota that is [enforced](QuotaMode::Enforce).
    ///
    /// `taken` is called with each amount of a quota that is [all or nothing](crate::QuotaSettings::all_or_nothing) as soon as a handler
    /// has granted it, whatever the outcome of the request. The caller has to give it back if the request is refused or fails.
    ///
    /// # Errors
    /// Failures, unless the failure policy ignores or denies them. A failure that it denies is a grant of nothing.
    pub async fn allocate(
        &mut self,
        request: QuotaRequest<'_>,
        mode: AllocationMode,
        mut taken: impl FnMut(TakenAmount),
    ) -> Result<Allocation, DispatchError> {
        self.budget.add_attributes(request.dedup_id.len())?;
        let QuotaPlan { calls, mut failures, names, found, unmatched, uncalled } =
            self.plan_quota(request.name).await?;
        failures.extend(self.config_denial());
        let denies_unknown = !found && self.policy.unknown_quota == OnUnknownQuota::Deny;
        if !found {
            let is_ignored = failures.iter().all(|failure| matches!(failure, FailureEffect::Ignore));
            self.note_unknown_quota(request.name, names, !denies_unknown && is_ignored);
        }
        let has_calls = !calls.is_empty();
        // Whether Mixer grants the amount whatever the adapters answer.
        let is_free = !found || unmatched && !self.is_strict || uncalled && !has_calls;
        let params = params(request, mode);
        let mut answers = Vec::with_capacity(calls.len());
        for_each_call(calls, Some(params), &self.caller, |mut call| {
            let instance = &call.planned.entry.instance;
            let result = call.answer.clone().and_then(|answer| decode(answer, &instance.name));
            let granted = result.as_ref().map_or(0, |result| result.granted_amount);
            if instance.quota.all_or_nothing && request.amount > 0 && granted > 0 && !mode.past_limit {
                taken(TakenAmount::new(&mut call.planned, params, granted));
            }
            answers.push((call, result));
            None
        })
        .await;
        let mut grants = Vec::new();
        for (call, result) in answers {
            match self.granted(&call, request.amount, result) {
                Ok(grant) => grants.push(grant),
                Err(status) => failures.push(self.failure(call.handler(), &status)),
            }
        }
        if self.is_strict {
            grants.sort_by_key(|grant| grant.precedence(request.amount));
        } else if is_free {
            grants.clear();
        } else if let Some(first) = grants.iter().position(|grant| grant.answer != QuotaAnswer::default()) {
            grants.swap(0, first);
        }
        let fatal: FailureTexts = fatal(&failures).into_iter().collect();
        if !fatal.is_empty() {
            self.trace_quota(request, 0, "");
            return Err(fatal.into());
        }
        let denial = failures.iter().find_map(|failure| match failure {
            FailureEffect::Deny(text) => Some(text),
            FailureEffect::Fatal(_) | FailureEffect::Ignore => None,
        });
        let valid_duration = if is_free { DEFAULT_DURATION } else { FAILED_DURATION };
        let answer = match (denial, grants.first()) {
            (Some(_), _) => QuotaAnswer::default(),
            (None, Some(first)) => first.answer,
            (None, None) if denies_unknown => QuotaAnswer { granted: 0, valid_duration },
            // All calls have failed, which is ignored, or there are none.
            (None, None) => QuotaAnswer { granted: request.amount, valid_duration },
        };
        let is_denied = denies_unknown || denial.is_some();
        let reason = match (denial, grants.first()) {
            (Some(denial), _) => format!(": {denial}"),
            (None, Some(grant)) => past_limit(grant.settings.mode).to_owned(),
            (None, None) if found && !has_calls && failures.is_empty() => {
                ": no rule of the quota matches".to_owned()
            }
            (None, None) => String::new(),
        };
        self.trace_quota(request, answer.granted, &reason);
        Ok(Allocation { answer, grants, matched: has_calls || is_denied, is_denied })
    }

    /// Counts, logs and traces a quota that no rule has.
    fn note_unknown_quota(&mut self, quota: &str, names: BTreeSet<&str>, granted: bool) {
        self.unknown_quotas += 1;
        tracing::debug!(quota, granted, "no rule has this quota");
        if let Some(trace) = &mut self.trace {
            trace.add(|| {
                let similar = suggest(quota, names).map(str::to_owned);
                Step::UnknownQuota { quota: quota.to_owned(), similar, granted }
            });
        }
    }

    /// Plans the calls for a quota, after the attribute generators unless they have run.
    async fn plan_quota(&mut self, name: &str) -> Result<QuotaPlan<'s>, DispatchError> {
        if let Some(reused) = self.reused_references.take() {
            self.references = Arc::unwrap_or_clone(reused);
        }
        self.references.clear_after();
        // A cached check answer did not run them.
        if !self.generated {
            self.generate().await.map_err(|error| error.within("preprocessing attributes failed"))?;
        }
        let mut plan = QuotaPlan::default();
        let mut conditions = Conditions::of(self.snapshot.quotas.of(&self.namespace));
        let mut planner = self.planner(false);
        for conditions in &mut conditions {
            let wanted = |entry: &'s crate::rules::Entry, matched: bool| {
                let wanted = entry.short_name().eq_ignore_ascii_case(name);
                plan.names.insert(entry.short_name());
                plan.found |= wanted;
                plan.unmatched |= wanted && !matched;
                wanted
            };
            planner.plan(Phase::Quota, conditions, wanted, |call| plan.calls.push(call))?;
        }
        plan.uncalled = planner.uncalled;
        plan.failures = planner.failures;
        Ok(plan)
    }

    fn trace_quota(
        &mut self,
        QuotaRequest { name, amount, .. }: QuotaRequest<'_>,
        granted: i64,
        reason: &str,
    ) {
        if let Some(trace) = &mut self.trace {
            let outcome = || format!("quota {name}: granted {granted} of {amount}{reason}");
            trace.add(|| Step::Merged { outcome: outcome() });
        }
    }

    /// Returns the adapter's grant of an amount. Counts and traces the call, and logs an invalid answer.
    fn granted(
        &mut self,
        call: &CompletedCall<'_>,
        amount: i64,
        result: Result<quota_result::Result, Status>,
    ) -> Result<QuotaGrant, Status> {
        let Instance { name: instance, quota: settings, .. } = &*call.planned.entry.instance;
        let outcome = result.as_ref().map(|result| {
            || {
                serde_json::json!({
                    "granted_amount": result.granted_amount,
                    "valid_duration": result.valid_duration.unwrap_or_default().to_string(),
                })
            }
        });
        call.trace(self.trace.as_deref_mut(), outcome);
        let result = result.inspect_err(|status| {
            // A failed call is logged where it is made.
            static LIMIT: LogLimit = LogLimit::new();
            if call.answer.is_ok()
                && let Some(suppressed) = LIMIT.admit()
            {
                let (handler, error) = (call.handler(), status.message());
                tracing::warn!(handler, %instance, error, suppressed, "invalid answer to a quota call");
            }
        })?;
        call.planned.entry.counts.quota.add(amount, result.granted_amount, result.limit.as_ref());
        let valid_duration = result.valid_duration.unwrap_or_default();
        Ok(QuotaGrant {
            handler: call.planned.destination.handler.name.clone(),
            instance: instance.clone(),
            settings: *settings,
            answer: QuotaAnswer { granted: result.granted_amount, valid_duration },
            limit: result.limit,
        })
    }
}

/// Returns what becomes of requests past a limit, for traces.
fn past_limit(mode: QuotaMode) -> &'static str {
    match mode {
        QuotaMode::Enforce => "",
        QuotaMode::Soft => "; behind Envoy, requests past the limit pass (soft)",
        QuotaMode::Shadow => "; behind Envoy, requests past the limit pass (shadow)",
    }
}

/// Returns the parameters of the calls for a quota.
fn params(request: QuotaRequest<'_>, mode: AllocationMode) -> QuotaParams<'_> {
    QuotaParams {
        name: request.name,
        instance: "",
        dedup_id: request.dedup_id,
        amount: request.amount,
        best_effort: request.best_effort,
        report_limit: mode.report_limit,
        past_limit: mode.past_limit,
        limit: mode.limit,
    }
}
