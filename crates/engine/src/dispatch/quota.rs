//! Quota allocation after an allowed check (docs/behaviour/dispatch.md#quota).

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Allocation, AllocationMode, DispatchError, QuotaAnswer, QuotaGrant, QuotaRequest, Request, TakenAmount,
    calls::{CompletedCall, for_each_call},
    evaluator::Evaluator,
    merge::{DEFAULT_DURATION, FAILED_DURATION},
    taken::decode,
};
use crate::{
    failed_part::FailureCause,
    handler::QuotaParams,
    instance::Instance,
    limits::LimitError,
    policy::{FailureEffect, OnUnknownQuota, fatal},
    proto::istio::mixer::v1::RouteDirective,
    quota_settings::QuotaMode,
    rules::{Entry, Group},
    trace::{Phase, Step},
};
use mixer_adapter_core::{
    framework::{log_limit::warn_limited, suggest::suggest},
    proto::{Status as RpcStatus, istio::mixer::adapter::model::v1beta1::quota_result},
};
use prost::Message as _;
use tonic::{Code, Status};

impl Request<'_> {
    /// Requests a quota. If it is not configured or its rule does not match, it is granted in full for a minute. The first of
    /// several handlers to respond wins. If an instance cannot be built or an adapter fails, nothing is granted, unless the
    /// failure policy is open.
    ///
    /// # Errors
    /// The instances exceed the limits of the call.
    pub async fn quota(&mut self, request: QuotaRequest<'_>) -> Result<QuotaAnswer, LimitError> {
        match self.allocate(request, AllocationMode::default(), |_| {}).await {
            Ok(allocation) => Ok(allocation.answer),
            Err(DispatchError::Limit(error)) => Err(error),
            Err(error) => {
                warn_limited!(quota = request.name, %error, "no quota granted");
                Ok(QuotaAnswer::default())
            }
        }
    }

    /// Requests a quota as [`quota`](Self::quota) does. In a [`strict`](Self::strict) request rules that do not match change
    /// nothing, and the lowest grant of several handlers wins, whichever responds first. A grant below the amount of a quota that is
    /// [enforced](QuotaMode::Enforce) takes precedence.
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
        taken: impl FnMut(TakenAmount),
    ) -> Result<Allocation, DispatchError> {
        self.record.budget.add_attributes(request.dedup_id.len())?;
        if let Some(reused) = self.reused_references.take() {
            self.references = Arc::unwrap_or_clone(reused);
        }
        self.references.clear_after();
        // A cached check answer did not run the attribute generators.
        let generated = self.begin(Phase::Quota).await;
        let evaluator = generated.map_err(|error| error.within("preprocessing attributes failed"))?;
        // In a box, as the evaluation of a check.
        Box::pin(evaluator.allocate(request, mode, taken)).await
    }
}

impl<'s> Evaluator<'_, 's> {
    async fn allocate(
        mut self,
        request: QuotaRequest<'_>,
        mode: AllocationMode,
        mut taken: impl FnMut(TakenAmount),
    ) -> Result<Allocation, DispatchError> {
        let Self { context, .. } = self;
        // Whether rules that apply to the request have the quota, and whether one of them does not match.
        let (mut is_found, mut has_unmatched) = (false, false);
        let plan = self.plan(&context.snapshot.quotas, |entry, matched| {
            let is_requested = entry.short_name().eq_ignore_ascii_case(request.name);
            is_found |= is_requested;
            has_unmatched |= is_requested && !matched;
            is_requested
        })?;
        self.failures.extend(self.config_denial());
        let denies_unknown = !is_found && context.policy.unknown_quota == OnUnknownQuota::Deny;
        if !is_found {
            let is_ignored = self.failures.iter().all(|failure| matches!(failure, FailureEffect::Ignore));
            self.note_unknown_quota(request.name, !denies_unknown && is_ignored);
        }
        let has_calls = !plan.calls.is_empty();
        // Whether Mixer grants the amount whatever the adapters answer.
        let is_free = !is_found || has_unmatched && !context.is_strict || plan.has_uncalled && !has_calls;
        let params = QuotaParams { request, mode, instance: "" };
        let mut answers = Vec::with_capacity(plan.calls.len());
        for_each_call(plan.calls, Some(params), context.caller, |mut call| {
            let instance = &call.planned.entry.instance;
            let result = call.take_answer().and_then(|answer| decode(answer, &instance.name));
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
                Ok(grant) => grants.push((grant, call.planned.group)),
                Err(status) => {
                    let failure = self.failure(&call, &status);
                    self.failures.push(failure);
                }
            }
        }
        if context.is_strict {
            grants.sort_by_key(|(grant, _)| grant.precedence(request.amount));
        } else if is_free {
            grants.clear();
        } else if let Some(first) =
            grants.iter().position(|(grant, _)| grant.answer != QuotaAnswer::default())
        {
            grants.swap(0, first);
        }
        let fatal = fatal(&self.failures);
        if !fatal.is_empty() {
            self.trace_quota(request, 0, "");
            return Err(fatal.into());
        }
        let has_failures = !self.failures.is_empty();
        let denial = std::mem::take(&mut self.failures).into_iter().find_map(FailureEffect::into_text);
        let is_denied = denies_unknown || denial.is_some();
        let valid_duration = if is_free { DEFAULT_DURATION } else { FAILED_DURATION };
        let (answer, reason) = match (denial, grants.first()) {
            (Some(denial), _) => (QuotaAnswer::default(), format!(": {denial}")),
            (None, Some((first, _))) => (first.answer, past_limit(first.settings.mode).to_owned()),
            (None, None) => {
                // All calls have failed, which is ignored, or there are none.
                let granted = if denies_unknown { 0 } else { request.amount };
                let is_unmatched = is_found && !has_calls && !has_failures;
                let reason = if is_unmatched { ": no rule of the quota matches" } else { "" };
                (QuotaAnswer { granted, valid_duration }, reason.to_owned())
            }
        };
        let is_formed = context.is_strict && !mode.past_limit && !is_denied;
        let response = if is_formed { self.form_refusal(request, &grants) } else { None };
        self.trace_quota(request, answer.granted, &reason);
        let grants = grants.into_iter().map(|(grant, _)| grant).collect();
        Ok(Allocation { answer, grants, matched: has_calls || is_denied, is_denied, response })
    }

    /// Returns the response to a request that rules refuse, in the form of the first of them that has one. `None` also if it cannot be
    /// given the form.
    fn form_refusal(
        &mut self,
        request: QuotaRequest<'_>,
        grants: &[(QuotaGrant, &Group)],
    ) -> Option<RouteDirective> {
        let mut refusing = grants.iter().filter(|(grant, _)| {
            grant.settings.mode == QuotaMode::Enforce && grant.is_over_limit(request.amount)
        });
        let (rule, form) = refusing.find_map(|(_, group)| Some((&group.rule, group.denial.as_deref()?)))?;
        let status = RpcStatus {
            code: Code::ResourceExhausted.into(),
            message: format!("the limit of {} is reached", request.name),
            details: Vec::new(),
        };
        let response = self.form_denial(rule, form, &status, None)?;
        // A call may have many descriptors.
        if self.record.budget.add_attributes(response.encoded_len()).is_err() {
            self.record.failed.add(rule, None, FailureCause::Denial);
            return None;
        }
        Some(response)
    }

    /// Counts, logs and traces a quota that no rule has.
    fn note_unknown_quota(&mut self, quota: &str, granted: bool) {
        self.record.counts.unknown_quotas += 1;
        tracing::debug!(quota, granted, "no rule has this quota");
        self.record.trace(|| {
            let tables = self.context.snapshot.quotas.of(self.namespace);
            let groups =
                tables.flat_map(|rules| &rules.destinations).flat_map(|destination| &destination.groups);
            let names: BTreeSet<&str> =
                groups.flat_map(|group| &group.entries).map(Entry::short_name).collect();
            let similar = suggest(quota, names).map(str::to_owned);
            Step::UnknownQuota { quota: quota.to_owned(), similar, granted }
        });
    }

    fn trace_quota(&mut self, request: QuotaRequest<'_>, granted: i64, reason: &str) {
        let QuotaRequest { name, amount, .. } = request;
        self.record.trace(|| Step::Merged {
            outcome: format!("quota {name}: granted {granted} of {amount}{reason}"),
        });
    }

    /// Returns the adapter's grant of an amount. Counts and traces the call, and logs an invalid answer.
    fn granted(
        &mut self,
        call: &CompletedCall<'_>,
        amount: i64,
        result: Result<quota_result::Result, Status>,
    ) -> Result<QuotaGrant, Status> {
        let Instance { name: instance, quota: settings, .. } = &*call.planned.entry.instance;
        self.record.trace(|| {
            call.step(result.as_ref().map(|result| {
                serde_json::json!({
                    "granted_amount": result.granted_amount,
                    "valid_duration": result.valid_duration.unwrap_or_default().to_string(),
                })
            }))
        });
        let result = result.inspect_err(|status| {
            // A failed call is logged where it is made.
            if call.answer.is_ok() {
                let (handler, error) = (call.handler(), status.message());
                warn_limited!(handler, %instance, error, "invalid answer to a quota call");
            }
        })?;
        if result.granted_amount < amount {
            self.record.refusing.push(call.planned.group.rule.clone());
        }
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

/// Describes the treatment of requests past a limit, for traces.
fn past_limit(mode: QuotaMode) -> &'static str {
    match mode {
        QuotaMode::Enforce => "",
        QuotaMode::Soft => "; behind Envoy, requests past the limit pass (soft)",
        QuotaMode::Shadow => "; behind Envoy, requests past the limit pass (shadow)",
    }
}
