use bytes::Bytes;
use prost::Message as _;

use super::{
    DispatchError, FailureTexts, Request,
    calls::{CompletedCall, call_all},
    merge::{DEFAULT_DURATION, DEFAULT_USES, MergedResult},
    plan::{Conditions, PlannedCall},
};
use crate::{
    answer::CheckAnswer,
    cache::CheckCache,
    policy::{FailureEffect, OnFailure, fatal},
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
    /// Returns the cached answer for the request, if there is one, with the references of the request it was created
    /// for.
    pub fn find_answer(&mut self) -> Option<CheckAnswer> {
        let (answer, references) = self.cache()?.get(&self.bag)?;
        self.references = references;
        if let Some(trace) = &mut self.trace {
            trace.steps.push(Step::Merged {
                outcome: "the answer to an earlier request holds for this one".to_owned(),
            });
        }
        Some(answer)
    }

    /// The cache of answers. A strict request has none: an answer of the cache may have ignored a failure.
    fn cache(&self) -> Option<&'s CheckCache> {
        self.snapshot.cache.as_ref().filter(|_| !self.is_strict)
    }

    /// Generates attributes and checks, or returns the cached answer.
    pub async fn answer(&mut self) -> Result<CheckAnswer, DispatchError> {
        // A traced request is never answered from the cache.
        if self.trace.is_none()
            && let Some(answer) = self.find_answer()
        {
            return Ok(answer);
        }
        let asked = self.cache().is_some().then(|| self.bag.clone());
        self.generate().await.map_err(|error| error.within("preprocessing attributes failed"))?;
        let answer = self.check().await.map_err(|error| error.within("performing check operation failed"))?;
        if let (Some(cache), Some(asked)) = (self.cache(), asked)
            && !self.has_ignored_failure
        {
            cache.insert(&asked, &self.references, &answer);
        }
        Ok(answer)
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
        let mut outputs: Vec<Option<Bytes>> = Vec::new();
        if !operations.operations.is_empty() {
            outputs.resize(operations.entries, None);
        }
        let mut merged = MergedResult::default();
        for answered in call_all(planned, None, &self.caller).await {
            match self.take(&answered) {
                Ok((result, output)) => {
                    merged.add(answered.denial_name(), result);
                    let planned = answered.planned;
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
            let (directive, failures) = self.header_operations(operations, conditions, &outputs);
            self.fail(&mut merged, failures)?;
            if !merged.is_denied() {
                merged.directive = directive;
            }
        }
        if self.has_ignored_failure && !merged.is_denied() {
            merged.limit_validity();
        }
        Ok(finish(merged, self.trace.as_deref_mut()))
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
        decoded.map_err(|status| self.failure(answered.handler(), &status))
    }

    /// Applies the failure policy.
    fn fail(&mut self, merged: &mut MergedResult, failures: Vec<FailureEffect>) -> Result<(), DispatchError> {
        let fatal = fatal(&failures);
        if !fatal.is_empty() {
            return Err(FailureTexts::from_iter(fatal).into());
        }
        for failure in failures {
            match failure {
                FailureEffect::Deny(text) => merged.deny(text),
                FailureEffect::Ignore => self.has_ignored_failure = true,
                FailureEffect::Fatal(_) => {}
            }
        }
        if self.snapshot.has_faults && self.policy.config_error == OnFailure::Closed {
            merged.deny("the configuration has faults".to_owned());
        }
        Ok(())
    }
}

fn finish(mut merged: MergedResult, trace: Option<&mut Trace>) -> CheckAnswer {
    if merged.says_nothing_of_validity() {
        merged.valid_duration = DEFAULT_DURATION;
        merged.valid_use_count = DEFAULT_USES;
    }
    if let Some(trace) = trace {
        trace.steps.push(Step::Merged { outcome: merged.describe() });
    }
    CheckAnswer {
        status: merged.status(),
        valid_duration: merged.valid_duration,
        valid_use_count: merged.valid_use_count,
        directive: merged.directive,
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
