//! Failed evaluations.

use std::time::Duration;

use mixer_adapter_core::{adapter::HttpError, http::HeaderName};

/// An evaluation without a decision.
#[derive(Debug, thiserror::Error)]
pub(super) enum EvaluationError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("the metadata is that of {0:?}, which is not the url of the configuration")]
    OtherService(String),
    #[error("the metadata names an endpoint on another host: {0:?}")]
    OtherHost(String),
    #[error("the metadata names no endpoint for several evaluations on the host of the url")]
    NoEvaluations,
    #[error("the answer does not have a decision about each evaluation")]
    Incomplete,
    #[error(
        "the value of the header {0} in the context is not a text, a number or a boolean that a header can have"
    )]
    Header(HeaderName),
    #[error("the cookie in the context has a comma, which separates cookies; write it as %2C")]
    Cookie,
    #[error(
        "the property {0:?} of the action is not a part of an evaluation; write it like \"evaluations.read.action\" or \
         \"evaluations.read.resource.id\""
    )]
    Property(String),
}

impl EvaluationError {
    /// Returns whether the service was away or failed. Otherwise the evaluation could not be sent, the service rejected it, or its answer was not a
    /// decision.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::Http(error) => error.is_outage(),
            Self::Timeout(_) => true,
            Self::OtherService(_)
            | Self::OtherHost(_)
            | Self::NoEvaluations
            | Self::Incomplete
            | Self::Header(_)
            | Self::Cookie
            | Self::Property(_) => false,
        }
    }
}
