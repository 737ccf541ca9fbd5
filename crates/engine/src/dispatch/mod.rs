//! Dispatches requests: from attributes to calls of handlers to a merged answer (docs/behaviour/dispatch.md).

mod allocation;
mod cached;
mod calls;
mod check;
mod context;
mod denial;
mod details;
mod direct_response;
mod evaluation;
mod evaluator;
mod failure_texts;
mod generate;
mod headers;
mod merge;
mod quota;
mod report;
mod request;
mod taken;

pub use super::{
    answer::{AnswerDetails, CheckAnswer, QuotaDimensions},
    policy::{FailurePolicy, OnFailure, OnUnknownQuota},
};
pub use allocation::{Allocation, AllocationMode, QuotaAnswer, QuotaGrant, QuotaRequest};
pub use context::RequestCounts;
pub use failure_texts::FailureTexts;
pub use mixer_adapter_host::handler::Caller;
pub use report::{LostInstances, PreparedReport, Report, ReportBatch};
pub(crate) use request::RequestAttributes;
pub use request::{CacheUse, Request};
pub use taken::{ReturnedAmount, TakenAmount};

use std::time::Duration;

use mixer_adapter_core::proto::Any;
use tokio::time::Instant;

use super::limits::LimitError;

/// Returns half of the time until the deadline of a call, at most `max`: the other half is for the work after a wait.
pub fn max_wait(caller: &Caller, max: Duration) -> Duration {
    caller.deadline.map_or(max, |deadline| max.min(deadline.saturating_duration_since(Instant::now()) / 2))
}

/// A request that cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    /// Parts of it failed. The Mixer API returns INTERNAL for a check and UNKNOWN for a report.
    #[error("{}{failures}", .phase.map_or_else(String::new, |phase| format!("{phase}: ")))]
    Failed {
        /// The phase in which they failed.
        phase: Option<&'static str>,
        /// The failures.
        failures: FailureTexts,
        /// The details of the errors of adapters.
        details: Vec<Any>,
    },
    /// It exceeds a limit. The Mixer API returns RESOURCE_EXHAUSTED.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl DispatchError {
    /// Adds the phase in which it occurred.
    fn within(self, phase: &'static str) -> Self {
        match self {
            Self::Failed { failures, details, .. } => Self::Failed { phase: Some(phase), failures, details },
            Self::Limit(_) => self,
        }
    }

    /// Adds the details of errors of adapters.
    fn with_details(self, details: Vec<Any>) -> Self {
        match self {
            Self::Failed { phase, failures, .. } => Self::Failed { phase, failures, details },
            Self::Limit(_) => self,
        }
    }
}

impl From<FailureTexts> for DispatchError {
    fn from(failures: FailureTexts) -> Self {
        Self::Failed { phase: None, failures, details: Vec::new() }
    }
}
