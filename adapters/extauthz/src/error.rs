//! Failed calls.

use std::time::Duration;

use mixer_adapter_core::adapter::HttpError;

/// A call without a decision.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("the service reports that its check failed: {0}")]
    Failed(String),
    #[error("the answer has no status, or a denial with the status OK")]
    Undecided,
    #[error("{0:?} is not a path that a URL can have")]
    Path(String),
    #[error("the method {0:?} cannot be sent: it is invalid, or CONNECT")]
    Method(String),
    #[error("the header {0:?} cannot be sent: it delimits messages, or has an invalid name or value")]
    Header(String),
    #[error("{0:?} is not a port")]
    Port(String),
    #[error("the body {0}")]
    Body(&'static str),
    #[error("servers ask each other in a circle")]
    Loop,
}

impl AskError {
    /// Returns whether the service was away or failed. Otherwise the question or the answer was at fault.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::Http(error) => error.is_outage(),
            Self::Timeout(_) | Self::Failed(_) => true,
            Self::Undecided
            | Self::Path(_)
            | Self::Method(_)
            | Self::Header(_)
            | Self::Port(_)
            | Self::Body(_)
            | Self::Loop => false,
        }
    }
}
