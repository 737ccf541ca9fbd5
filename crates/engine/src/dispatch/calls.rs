//! Calls of handlers. The calls of a phase are concurrent; their results are in the order of completion.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use super::{
    AllocationMode,
    evaluator::{Evaluator, PlannedCall},
};
use crate::{
    failed_part::FailureCause,
    handler::QuotaParams,
    policy::{FailureEffect, OnFailure},
    rules::Destination,
    trace::{Step, status_text},
};
use mixer_adapter_core::template::Response;
use mixer_adapter_host::handler::Caller;

/// A completed call.
pub(super) struct CompletedCall<'s> {
    pub(super) planned: PlannedCall<'s>,
    pub(super) answer: Result<Response, Status>,
    took: Duration,
}

/// Calls handlers concurrently, and passes each call to `completed`, even if this is dropped later. `completed` can return when to
/// cancel the other calls. Returns the number of cancelled calls.
pub(super) async fn for_each_call<'s>(
    planned: Vec<PlannedCall<'s>>,
    quota: Option<QuotaParams<'_>>,
    caller: &Caller,
    mut completed: impl FnMut(CompletedCall<'s>) -> Option<Instant>,
) -> usize {
    if planned.len() <= 1 {
        for planned in planned {
            completed(call(planned, quota, caller).await);
        }
        return 0;
    }
    let mut calls: FuturesUnordered<_> =
        planned.into_iter().map(|planned| call(planned, quota, caller)).collect();
    let mut end = None;
    loop {
        let next = match end {
            Some(end) => timeout_at(end, calls.next()).await.ok().flatten(),
            None => calls.next().await,
        };
        let Some(call) = next else { return calls.len() };
        let wanted = completed(call);
        end = end.or(wanted);
    }
}

async fn call<'s>(
    mut planned: PlannedCall<'s>,
    quota: Option<QuotaParams<'_>>,
    caller: &Caller,
) -> CompletedCall<'s> {
    let destination = planned.destination;
    let instance = &planned.entry.instance;
    let name = &*instance.name;
    let quota = quota.map(|quota| {
        let limit = quota.mode.limit.and_then(|limit| instance.quota.bounded(limit));
        QuotaParams { instance: name, mode: AllocationMode { limit, ..quota.mode }, ..quota }
    });
    // The call that gives an amount back needs the instance again.
    let mut copy = instance.quota.all_or_nothing.then(|| planned.instance.clone());
    let instances = std::slice::from_mut(copy.as_mut().unwrap_or(&mut planned.instance));
    let Destination { handler, template, .. } = destination;
    let (answer, took) = handler.call(template, instances, &[name], quota, caller).await;
    planned.group.counts.record_call(&handler.name, code_of(&answer), took);
    CompletedCall { answer, took, planned }
}

impl CompletedCall<'_> {
    pub(super) fn handler(&self) -> &str {
        &self.planned.destination.handler.name
    }

    /// The name in messages of the handler's denials.
    pub(super) fn denial_name(&self) -> &str {
        &self.planned.destination.handler.denial_name
    }

    /// Takes the answer.
    pub(super) fn take_answer(&mut self) -> Result<Response, Status> {
        self.answer.as_mut().map(std::mem::take).map_err(|status| status.clone())
    }

    /// Describes the call with its outcome for a trace.
    pub(super) fn step(&self, outcome: Result<serde_json::Value, &Status>) -> Step {
        let instances = vec![self.planned.entry.instance.name.to_string()];
        Step::call(self.handler(), self.planned.destination.template.name(), instances, outcome, self.took)
    }
}

impl Evaluator<'_, '_> {
    /// Converts an adapter's error to a failure of the request.
    pub(super) fn failure(&mut self, call: &CompletedCall<'_>, status: &Status) -> FailureEffect {
        self.call_failed(call, status);
        let policy = match status.code() {
            Code::DeadlineExceeded => self.context.policy.timeout,
            _ => self.context.policy.adapter_error,
        };
        policy.of_call(|| failure_text(call.handler(), status))
    }

    /// Records a call that failed, or whose answer cannot be used.
    pub(super) fn call_failed(&mut self, call: &CompletedCall<'_>, status: &Status) {
        let PlannedCall { group, destination, .. } = &call.planned;
        self.evaluation.call_failed(status.code());
        self.record.failed.add(
            &group.rule,
            Some(&destination.handler.name),
            FailureCause::Call(status.code()),
        );
    }

    /// Returns the failure of calls that were cancelled.
    pub(super) fn cancelled(&mut self, calls: usize) -> FailureEffect {
        self.evaluation.call_failed(Code::DeadlineExceeded);
        self.context.policy.timeout.of_call(|| format!("{calls} calls of adapters did not end in time"))
    }

    /// Returns a denial if the configuration has faults and the policy does not allow requests then.
    pub(super) fn config_denial(&self) -> Option<FailureEffect> {
        let is_denied =
            self.context.snapshot.has_faults && self.context.policy.config_error == OnFailure::Closed;
        is_denied.then(|| FailureEffect::Deny("the configuration has faults".to_owned()))
    }
}

/// Returns the code that a call ended with.
pub(super) fn code_of(answer: &Result<Response, Status>) -> Code {
    answer.as_ref().map_or_else(Status::code, |_| Code::Ok)
}

pub(super) fn failure_text(handler: &str, status: &Status) -> String {
    format!("{handler}: {}", status_text(status))
}
