//! The fixed inputs of a request, and the records of its phases.

use std::sync::Arc;

use mixer_adapter_host::handler::Caller;

use crate::{
    failed_part::FailedParts,
    limits::Budget,
    policy::FailurePolicy,
    resource_counts::AnswerOrigin,
    snapshot::Snapshot,
    trace::{Step, Trace},
};

/// The inputs of a request other than its attributes.
#[derive(Debug)]
pub(super) struct Context<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) caller: &'s Caller,
    pub(super) policy: FailurePolicy,
    pub(super) is_strict: bool,
    /// Whether the details of answers name the rules that decided.
    pub(super) names_rules: bool,
}

/// The results of phases other than their answers.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) trace: Option<Box<Trace>>,
    pub(super) budget: Budget,
    pub(super) counts: RequestCounts,
    /// The parts that failed.
    pub(super) failed: FailedParts,
    /// The rules whose quotas granted less than the amount.
    pub(super) refusing: Vec<Arc<str>>,
    /// The origin of the answer, if it may be cached.
    pub(super) origin: Option<Box<AnswerOrigin>>,
}

/// Events of a request; see [`Counts::request`](crate::Counts::request).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestCounts {
    /// Number of conditions that could not be evaluated.
    pub condition_errors: u64,
    /// Number of details of denials and errors omitted from the answer because of its size.
    pub omitted_details: u64,
    /// Number of quota requests for which no rule has a quota.
    pub unknown_quotas: u64,
}

impl Record {
    /// Adds a step to the trace, if the request is traced.
    pub(super) fn trace(&mut self, step: impl FnOnce() -> Step) {
        if let Some(trace) = &mut self.trace {
            trace.add(step);
        }
    }
}
