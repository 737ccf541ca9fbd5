use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message as _;

use super::{
    DispatchError, FailureTexts, Request,
    calls::{CompletedCall, call_all},
    merge::{DEFAULT_DURATION, DEFAULT_USES, MergedResult},
    plan::{Conditions, PlannedCall},
};
use crate::{
    answer::{AnswerDetails, CheckAnswer},
    policy::{FailureEffect, fatal},
    trace::{Phase, Step, Trace},
};
use mixer_adapter_core::{proto::CheckResult, template::Variety};

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
        let mut failures = planner.failures;

        let (operating, operations) = snapshot.checks.with_operations(&self.namespace);
        self.evaluation.add_calls(planned.len());
        let mut outputs: Vec<Option<Bytes>> = Vec::new();
        if !operations.operations.is_empty() {
            outputs.resize(operations.entries, None);
        }
        let mut merged = MergedResult::default();
        let mut details = AnswerDetails::default();
        let mut denying = Vec::new();
        if self.names_rules {
            for call in &planned {
                details.add_rule(&call.group.rule);
            }
        }
        for answered in call_all(planned, None, &self.caller).await {
            match self.take(&answered) {
                Ok((result, output)) => {
                    let is_denied = result.status.as_ref().is_some_and(|status| status.code != 0);
                    merged.add(answered.denial_name(), result);
                    let planned = answered.planned;
                    if is_denied {
                        self.evaluation.denied = true;
                        planned.group.counts.add_denial();
                        denying.push(planned.group.rule.clone());
                    }
                    if planned.rules == operating
                        && let Some(place) = outputs.get_mut(planned.entry.index)
                    {
                        *place = output;
                    }
                }
                Err(failure) => failures.push(failure),
            }
        }
        self.fail(&mut merged, failures)?;
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
            true if self.names_rules => details = AnswerDetails::of_denial(denying),
            false if self.is_strict => details.dimensions = self.quota_dimensions()?,
            _ => {}
        }
        self.omitted_details += merged.limit_details();
        Ok(finish(merged, details, self.evaluation.caching.max_age, self.trace.as_deref_mut()))
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

    /// Applies the failure policy.
    fn fail(&mut self, merged: &mut MergedResult, failures: Vec<FailureEffect>) -> Result<(), DispatchError> {
        let fatal = fatal(&failures);
        let details = std::mem::take(&mut self.failure_details);
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
        Ok(())
    }
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
    }
    merged.limit_duration(max_age);
    if let Some(trace) = trace {
        trace.add(|| Step::Merged { outcome: merged.describe() });
    }
    CheckAnswer {
        valid_duration: merged.valid_duration,
        valid_use_count: merged.valid_use_count,
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
