//! Checks: the calls of the matching rules, and their merged answer (docs/behaviour/dispatch.md#phases-of-a-request).

use std::{
    cmp::Reverse,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use prost::Message as _;
use prost_types::Struct;
use tokio::time::Instant;
use tonic::Code;

use super::{
    DispatchError, FailureTexts, Request,
    calls::{CompletedCall, for_each_call},
    direct_response::{header_operations, take_metadata, undecodable},
    evaluator::{Conditions, Evaluator},
    max_wait,
    merge::{DEFAULT_DURATION, DEFAULT_USES, MergedResult},
};
use crate::{
    answer::{AnswerDetails, CheckAnswer},
    policy::{FailureEffect, fatal},
    proto::istio::mixer::v1::RouteDirective,
    rules::Rules,
    trace::{Phase, Step},
};
use mixer_adapter_core::{
    framework::status::limit_details,
    proto::{Any, CheckResult},
    template::Variety,
};
use mixer_adapter_host::handler::details_of;

/// How long other calls may take after a denial behind Envoy: a quarter of its default timeout, which also limits each try of a call
/// whose deadline is later.
const DENIAL_GRACE: Duration = Duration::from_millis(50);

/// The longest metadata of all adapters together in bytes.
const MAX_ALL_METADATA: usize = 64 << 10;

/// The answer of an adapter.
struct DecodedAnswer {
    result: CheckResult,
    output: Option<Bytes>,
    /// Of an answer that allows.
    operations: Option<RouteDirective>,
    /// Metadata for the proxy. Only a denial can have invalid ones.
    metadata: Result<Struct, tonic::Status>,
}

/// The position of an action: of its namespace's rules, and of its entry.
type Position = (usize, usize);

/// A check, with the results of calls in the order of completion.
pub(super) struct Check<'r, 's> {
    pub(super) evaluator: Evaluator<'r, 's>,
    merged: MergedResult,
    /// The position of the namespace whose header operations apply.
    operating: usize,
    /// Header operations of adapters that allowed the request, with the positions of their actions.
    adapter_operations: Vec<(Position, RouteDirective)>,
    /// Metadata of adapters for the proxy, with the positions of their actions.
    metadata: Vec<(Position, Struct)>,
    /// By index of the entry, of the rules whose header operations apply.
    pub(super) outputs: Vec<Option<Bytes>>,
    /// The rules whose adapters denied the request.
    denying: Vec<Arc<str>>,
    /// The details of failed calls.
    failure_details: Vec<Any>,
    pub(super) details: AnswerDetails,
}

impl Request<'_> {
    /// Generates attributes and checks. The future is large; in a box it is not moved with each future that waits for it.
    pub(super) async fn evaluate(&mut self) -> Result<CheckAnswer, DispatchError> {
        let generated = self.begin(Phase::Check).await;
        let evaluator = generated.map_err(|error| error.within("preprocessing attributes failed"))?;
        let mut check = Check::new(evaluator);
        let called = check.call_handlers().await;
        let answer = called.and_then(|(operations, conditions)| check.answer(operations, conditions));
        answer.map_err(|error| error.within("performing check operation failed"))
    }
}

impl<'r, 's> Check<'r, 's> {
    fn new(evaluator: Evaluator<'r, 's>) -> Self {
        Self {
            evaluator,
            merged: MergedResult::default(),
            operating: 0,
            adapter_operations: Vec::new(),
            metadata: Vec::new(),
            outputs: Vec::new(),
            denying: Vec::new(),
            failure_details: Vec::new(),
            details: AnswerDetails::default(),
        }
    }

    /// Sends every instance of every matching rule, merges the results, and returns the rules whose header operations apply, and
    /// all conditions.
    async fn call_handlers(&mut self) -> Result<(&'s Rules, Vec<Conditions<'s>>), DispatchError> {
        let context = self.evaluator.context;
        let table = &context.snapshot.checks;
        let plan = self.evaluator.plan(table, |_, _| true)?;
        let (operating, operations) = table.with_operations(self.evaluator.namespace);
        self.operating = operating;
        self.evaluator.add_calls(&plan);
        if !operations.operations.is_empty() {
            self.outputs.resize(operations.entries, None);
        }
        if context.names_rules {
            for call in &plan.calls {
                self.details.add_rule(&call.group.rule);
            }
        }
        let cancelled = for_each_call(plan.calls, None, context.caller, |mut call| self.add(&mut call)).await;
        if cancelled > 0 {
            let failure = self.evaluator.cancelled(cancelled);
            self.evaluator.failures.push(failure);
        }
        Ok((operations, plan.conditions))
    }

    /// Applies the failure policy and the operations of rules on headers.
    fn answer(
        mut self,
        operations: &'s Rules,
        mut conditions: Vec<Conditions<'s>>,
    ) -> Result<CheckAnswer, DispatchError> {
        let context = self.evaluator.context;
        let metadata = self.encode_metadata();
        let hidden = self.apply_policy()?;
        if !self.merged.denied {
            let mut directive = self.operations_of_adapters();
            if let Some(conditions) = conditions.get_mut(self.operating) {
                self.header_operations(operations, conditions, &mut directive);
                self.apply_policy()?;
            }
            if !self.merged.denied && directive != RouteDirective::default() {
                self.merged.directive = Some(directive);
            }
        }
        if self.merged.denied {
            if context.names_rules {
                self.details = AnswerDetails::of_denial(self.denying, hidden);
            }
        } else {
            if self.evaluator.evaluation.has_ignored_failure {
                self.merged.limit_validity();
            }
            if context.is_strict {
                self.details.dimensions = self.evaluator.quota_dimensions()?;
            }
        }
        self.details.metadata = metadata;
        self.evaluator.record.counts.omitted_details += limit_details(&mut self.merged.details);
        Ok(finish(self.merged, self.details, self.evaluator))
    }

    /// Adds a completed call. After a denial behind Envoy, returns when to cancel the other calls: Envoy may allow a request whose
    /// answer is late.
    fn add(&mut self, call: &mut CompletedCall<'_>) -> Option<Instant> {
        let decoded = decode(call);
        self.evaluator.record.trace(|| call.step(decoded.as_ref().map(|decoded| describe(&decoded.result))));
        let DecodedAnswer { result, output, operations, metadata } = match decoded {
            Ok(decoded) => decoded,
            Err(status) => {
                let failure = self.evaluator.failure(call, &status);
                if !matches!(failure, FailureEffect::Ignore) {
                    self.failure_details.extend(details_of(&status));
                    self.evaluator.record.counts.omitted_details += limit_details(&mut self.failure_details);
                }
                self.evaluator.failures.push(failure);
                return None;
            }
        };
        let is_denied = result.status.as_ref().is_some_and(|status| status.code != 0);
        let planned = &call.planned;
        let position = (planned.rules, planned.entry.index);
        self.adapter_operations.extend(operations.map(|operations| (position, operations)));
        if self.evaluator.context.is_strict {
            match metadata {
                Ok(metadata) if metadata.fields.is_empty() => {}
                Ok(metadata) => self.metadata.push((position, metadata)),
                Err(status) => {
                    let failure = self.evaluator.failure(call, &status);
                    self.evaluator.failures.push(failure);
                }
            }
        }
        let form = planned.group.denial.as_deref().filter(|_| is_denied && !self.merged.denied);
        let status = form.and_then(|_| result.status.clone());
        self.merged.add(call.denial_name(), result);
        if let (Some(form), Some(status)) = (form, status) {
            let response = self.merged.directive.take();
            self.merged.directive = self.evaluator.form_denial(&planned.group.rule, form, &status, response);
        }
        if planned.rules == self.operating
            && let Some(place) = self.outputs.get_mut(planned.entry.index)
        {
            *place = output;
        }
        if !is_denied {
            return None;
        }
        self.evaluator.evaluation.denied = true;
        planned.group.counts.denied.fetch_add(1, Relaxed);
        if let Some(origin) = &mut self.evaluator.record.origin {
            origin.denied.push(planned.group.counts.clone());
        }
        self.denying.push(planned.group.rule.clone());
        let context = self.evaluator.context;
        context.is_strict.then(|| Instant::now() + max_wait(context.caller, DENIAL_GRACE))
    }

    /// Returns the header operations of the adapters, in the order of their actions.
    fn operations_of_adapters(&mut self) -> RouteDirective {
        self.adapter_operations.sort_by_key(|(position, _)| *position);
        let mut all = RouteDirective::default();
        for (_, operations) in self.adapter_operations.drain(..) {
            all.request_header_operations.extend(operations.request_header_operations);
            all.response_header_operations.extend(operations.response_header_operations);
        }
        all
    }

    /// Merges and encodes the metadata of the adapters. A name has the value of the first action. Metadata over the limit are a failure, which a
    /// denial hides.
    fn encode_metadata(&mut self) -> Vec<u8> {
        self.metadata.sort_by_key(|(position, _)| Reverse(*position));
        let fields = self.metadata.drain(..).flat_map(|(_, metadata)| metadata.fields).collect();
        let encoded = Struct { fields }.encode_to_vec();
        let size = encoded.len();
        if size <= MAX_ALL_METADATA {
            return encoded;
        }
        self.evaluator.evaluation.call_failed(Code::Internal);
        let failure = self.evaluator.context.policy.adapter_error.of_call(|| {
            format!(
                "the answers of all adapters have {size} bytes of metadata; the limit is {MAX_ALL_METADATA}"
            )
        });
        self.evaluator.failures.push(failure);
        Vec::new()
    }

    /// Applies the failure policy to the failures so far. Behind Envoy an adapter's denial takes precedence: Envoy may allow requests
    /// that could not be checked. Returns the failures that the answer then hides.
    fn apply_policy(&mut self) -> Result<FailureTexts, DispatchError> {
        let failures = std::mem::take(&mut self.evaluator.failures);
        let details = std::mem::take(&mut self.failure_details);
        let evaluation = &mut *self.evaluator.evaluation;
        if self.evaluator.context.is_strict && self.merged.denied {
            evaluation.has_ignored_failure |= !failures.is_empty();
            return Ok(failures.into_iter().filter_map(FailureEffect::into_text).collect());
        }
        let fatal = fatal(&failures);
        if !fatal.is_empty() {
            return Err(DispatchError::from(fatal).with_details(details));
        }
        self.merged.details.extend(details);
        for failure in failures.into_iter().chain(self.evaluator.config_denial()) {
            match failure {
                FailureEffect::Deny(text) => self.merged.deny(text),
                FailureEffect::Ignore => self.evaluator.evaluation.has_ignored_failure = true,
                FailureEffect::Fatal(_) => {}
            }
        }
        Ok(FailureTexts::default())
    }
}

/// Returns an adapter's result, with the output if its template has one, the header operations if it allows, and its metadata.
fn decode(call: &mut CompletedCall<'_>) -> Result<DecodedAnswer, tonic::Status> {
    let has_output = call.planned.destination.template.variety() == Variety::CheckWithOutput;
    let (mut result, output) = call.take_answer()?.into_check(has_output).map_err(undecodable)?;
    let metadata = result.status.as_mut().map_or_else(|| Ok(Struct::default()), take_metadata);
    let status = result.status.as_ref().filter(|status| status.code == 0);
    if let (Some(_), Err(error)) = (status, &metadata) {
        return Err(error.clone());
    }
    let operations = status.map(header_operations).transpose().map_err(undecodable)?.flatten();
    Ok(DecodedAnswer { result, output, operations, metadata })
}

fn finish(mut merged: MergedResult, details: AnswerDetails, evaluator: Evaluator<'_, '_>) -> CheckAnswer {
    if merged.has_no_validity() {
        merged.valid_duration = DEFAULT_DURATION;
        merged.valid_use_count = DEFAULT_USES;
        merged.max_uses = Some(DEFAULT_USES);
    }
    merged.limit_duration(evaluator.evaluation.caching.max_age);
    evaluator.record.trace(|| Step::Merged { outcome: merged.describe() });
    if let Some(trace) = &mut evaluator.record.trace {
        trace.rules.clone_from(&details.rules);
    }
    CheckAnswer {
        valid_duration: merged.valid_duration,
        valid_use_count: merged.valid_use_count,
        max_uses: merged.max_uses,
        directive: merged.directive.take().map(Arc::new),
        status: merged.into_status(),
        details: Arc::new(details),
    }
}

fn describe(result: &CheckResult) -> serde_json::Value {
    let status = result.status.clone().unwrap_or_default();
    serde_json::json!({
        "code": mixer_adapter_core::framework::status::status_name(Code::from_i32(status.code) as i32),
        "message": status.message,
        "valid_duration": result.valid_duration.unwrap_or_default().to_string(),
        "valid_use_count": result.valid_use_count,
    })
}
