//! Failed evaluations.

use std::time::Duration;

use mixer_adapter_core::adapter::HttpError;

/// An evaluation without a decision.
#[derive(Debug, thiserror::Error)]
pub(super) enum EvaluationError {
    #[error(transparent)]
    Unavailable(HttpError),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Rejected(HttpError),
    #[error("the metadata is that of {0:?}, which is not the url of the configuration")]
    OtherService(String),
    #[error("the metadata names an endpoint on another host: {0:?}")]
    OtherHost(String),
    #[error("the metadata names no endpoint for several evaluations")]
    NoEvaluations,
    #[error("the answer does not have a decision about each evaluation")]
    Incomplete,
    #[error(
        "the property {0:?} of the action is not a part of an evaluation; write it like \"evaluations.read.action\" or \
         \"evaluations.read.resource.id\""
    )]
    Property(String),
}

impl EvaluationError {
    /// Returns whether the service was away or failed. Otherwise it rejected the evaluation, or its answer was not a decision.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Timeout(_))
    }
}
