use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message as _;
use tokio::time::Instant;

use super::{
    DispatchError, FailureTexts, Request,
    calls::{CompletedCall, for_each_call},
    merge::{DEFAULT_DURATION, DEFAULT_USES, MergedResult},
    plan::{Conditions, PlannedCall},
};
use crate::{
    answer::{AnswerDetails, CheckAnswer},
    policy::{FailureEffect, fatal},
    trace::{Phase, Step, Trace},
};
use mixer_adapter_core::{proto::CheckResult, template::Variety};

/// How long other calls may take after a denial behind Envoy: a quarter of its default timeout, which also limits each try of a call
/// whose deadline is later.
const DENIAL_GRACE: Duration = Duration::from_millis(50);

/// The result of a check with output, for any template.
#[derive(Clone, PartialEq, prost::Message)]
struct WithOutput {
    #[prost(message, optional, tag = "1")]
    result: Option<CheckResult>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    output: Option<Bytes>,
}

impl<'s> Request<'s> {
    /// Generates attributes and checks.
    pub(super) async fn evaluate(&mut self) -> Result<CheckAnswer, DispatchError> {
        self.generate().await.map_err(|error| error.within("preprocessing attributes failed"))?;
        self.check().await.map_err(|error| error.within("performing check operation failed"))
    }

    /// Checks the request: sends every instance of every matching rule and merges the results.
    pub async fn check(&mut self) -> Result<CheckAnswer, DispatchError> {
        let snapshot = self.snapshot;
        let mut conditions = Conditions::of(snapshot.checks.of(&self.namespace));
        let mut planned: Vec<PlannedCall<'s>> = Vec::new();
        let mut planner = self.planner(false);
        for conditions in &mut conditions {
            planner.plan(Phase::Check, conditions, |_, _| true, |call| planned.push(call))?;
        }
        let mut results = Results { failures: planner.failures, ..Results::default() };
        let (operating, operations) = snapshot.checks.with_operations(&self.namespace);
        self.evaluation.add_calls(planned.len());
        if !operations.operations.is_empty() {
            results.outputs.resize(operations.entries, None);
        }
        let mut details = AnswerDetails::default();
        if self.names_rules {
            for call in &planned {
                details.add_rule(&call.group.rule);
            }
        }
        let caller = self.caller.clone();
        let completed = |call: CompletedCall<'s>| self.collect(&call, operating, &mut results);
        let cancelled = for_each_call(planned, None, &caller, completed).await;
        if cancelled > 0 {
            results.failures.push(self.cancelled(cancelled));
        }
        let Results { mut merged, outputs, denying, failures } = results;
        let hidden = self.fail(&mut merged, failures)?;
        if !merged.is_denied()
            && let Some(conditions) = conditions.get_mut(operating)
        {
            let (directive, failures) =
                self.header_operations(operations, conditions, &outputs, &mut details);
            self.fail(&mut merged, failures)?;
            if !merged.is_denied() {
                merged.directive = directive;
            }
        }
        if self.has_ignored_failure && !merged.is_denied() {
            merged.limit_validity();
        }
        match merged.is_denied() {
            true if self.names_rules => details = AnswerDetails::of_denial(denying, hidden),
            false if self.is_strict => details.dimensions = self.quota_dimensions()?,
            _ => {}
        }
        self.omitted_details += merged.limit_details();
        Ok(finish(merged, details, self.evaluation.caching.max_age, self.trace.as_deref_mut()))
    }

    /// Adds a completed call to the results. After a denial behind Envoy, returns when to cancel the other calls: Envoy may allow
    /// a request whose answer is late.
    fn collect(
        &mut self,
        call: &CompletedCall<'_>,
        operating: usize,
        results: &mut Results,
    ) -> Option<Instant> {
        let (result, output) = match self.take(call) {
            Ok(taken) => taken,
            Err(failure) => {
                results.failures.push(failure);
                return None;
            }
        };
        let is_denied = result.status.as_ref().is_some_and(|status| status.code != 0);
        results.merged.add(call.denial_name(), result);
        let planned = &call.planned;
        if planned.rules == operating
            && let Some(place) = results.outputs.get_mut(planned.entry.index)
        {
            *place = output;
        }
        if !is_denied {
            return None;
        }
        self.evaluation.denied = true;
        planned.group.counts.add_denial();
        results.denying.push(planned.group.rule.clone());
        self.is_strict.then(|| {
            let now = Instant::now();
            let left = self.caller.deadline.map(|deadline| deadline.saturating_duration_since(now) / 2);
            now + left.map_or(DENIAL_GRACE, |left| left.min(DENIAL_GRACE))
        })
    }

    /// Returns the adapter's result or its failure.
    fn take(&mut self, answered: &CompletedCall<'_>) -> Result<(CheckResult, Option<Bytes>), FailureEffect> {
        let decoded = answered.answer.clone().and_then(|bytes| {
            let undecodable = |error: prost::DecodeError| {
                tonic::Status::internal(format!("the answer cannot be decoded: {error}"))
            };
            match answered.planned.destination.template.variety() {
                Variety::CheckWithOutput => {
                    let answer = WithOutput::decode(bytes).map_err(undecodable)?;
                    Ok((answer.result.unwrap_or_default(), answer.output))
                }
                _ => Ok((CheckResult::decode(bytes).map_err(undecodable)?, None)),
            }
        });
        let outcome = decoded.as_ref().map(|(result, _)| || describe(result));
        answered.trace(self.trace.as_deref_mut(), outcome);
        decoded.map_err(|status| {
            let failure = self.failure(answered.handler(), &status);
            if !matches!(failure, FailureEffect::Ignore) {
                self.add_failure_details(&status);
            }
            failure
        })
    }

    /// Applies the failure policy. Behind Envoy an adapter's denial takes precedence: Envoy may allow requests that could not be
    /// checked. Returns the failures that the answer then hides.
    fn fail(
        &mut self,
        merged: &mut MergedResult,
        failures: Vec<FailureEffect>,
    ) -> Result<FailureTexts, DispatchError> {
        let details = std::mem::take(&mut self.failure_details);
        if self.is_strict && merged.is_denied() {
            self.has_ignored_failure |= !failures.is_empty();
            return Ok(failures.into_iter().filter_map(FailureEffect::into_text).collect());
        }
        let fatal = fatal(&failures);
        if !fatal.is_empty() {
            return Err(DispatchError::from(FailureTexts::from_iter(fatal)).with_details(details));
        }
        merged.add_details(details);
        for failure in failures.into_iter().chain(self.config_denial()) {
            match failure {
                FailureEffect::Deny(text) => merged.deny(text),
                FailureEffect::Ignore => self.has_ignored_failure = true,
                FailureEffect::Fatal(_) => {}
            }
        }
        Ok(FailureTexts::default())
    }
}

/// The results of calls, in the order of completion.
#[derive(Default)]
struct Results {
    merged: MergedResult,
    /// By index of the entry, of the rules whose header operations apply.
    outputs: Vec<Option<Bytes>>,
    /// The rules whose adapters denied the request.
    denying: Vec<Arc<str>>,
    failures: Vec<FailureEffect>,
}

fn finish(
    mut merged: MergedResult,
    details: AnswerDetails,
    max_age: Duration,
    trace: Option<&mut Trace>,
) -> CheckAnswer {
    if merged.has_no_validity() {
        merged.valid_duration = DEFAULT_DURATION;
        merged.valid_use_count = DEFAULT_USES;
        merged.max_uses = Some(DEFAULT_USES);
    }
    merged.limit_duration(max_age);
    if let Some(trace) = trace {
        trace.add(|| Step::Merged { outcome: merged.describe() });
    }
    CheckAnswer {
        valid_duration: merged.valid_duration,
        valid_use_count: merged.valid_use_count,
        max_uses: merged.max_uses,
        directive: merged.directive.take(),
        status: merged.into_status(),
        details: Arc::new(details),
    }
}

fn describe(result: &CheckResult) -> serde_json::Value {
    let status = result.status.clone().unwrap_or_default();
    serde_json::json!({
        "code": mixer_adapter_core::framework::status::status_name(tonic::Code::from_i32(status.code) as i32),
        "message": status.message,
        "valid_duration": result.valid_duration.unwrap_or_default().to_string(),
        "valid_use_count": result.valid_use_count,
    })
}
