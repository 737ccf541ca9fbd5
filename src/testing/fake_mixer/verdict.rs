use std::time::Duration;

use crate::service::mixer::referenced;
use mixer_adapter_core::proto::{CheckResult, Status};
use mixer_adapter_engine::proto::istio::mixer::v1::{
    ReferencedAttributes, RouteDirective, check_response::PreconditionResult,
};

/// The answer to a check: of the engine, which merged those of all adapters, or of one adapter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// OK, or why the request is denied. The engine writes the handler's name before an adapter's message.
    pub status: Status,
    /// How long the answer may be kept.
    pub valid_duration: Duration,
    /// For how many requests.
    pub valid_use_count: i32,
    /// What the engine says is to be done to headers, or to be answered in place of the service.
    pub directive: Option<RouteDirective>,
    /// What the engine looked at: `request.path`, `request.headers["x-user"]`, and `request.host (absent)` for what was not
    /// there; sorted.
    pub references: Vec<String>,
}

impl Verdict {
    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        self.status.code == 0
    }
}

impl From<CheckResult> for Verdict {
    fn from(result: CheckResult) -> Self {
        Self {
            status: result.status.unwrap_or_default(),
            valid_duration: duration(result.valid_duration),
            valid_use_count: result.valid_use_count,
            ..Self::default()
        }
    }
}

impl From<PreconditionResult> for Verdict {
    fn from(result: PreconditionResult) -> Self {
        Self {
            status: result.status.unwrap_or_default(),
            valid_duration: duration(result.valid_duration),
            valid_use_count: result.valid_use_count,
            directive: result.route_directive,
            references: references(&result.referenced_attributes.unwrap_or_default()),
        }
    }
}

/// A negative one is none.
pub(super) fn duration(duration: Option<prost_types::Duration>) -> Duration {
    duration.and_then(|duration| duration.try_into().ok()).unwrap_or_default()
}

fn references(answered: &ReferencedAttributes) -> Vec<String> {
    let references = referenced(answered).into_iter().map(|(attribute, key, condition)| {
        let key = key.map(|key| format!("[{key:?}]")).unwrap_or_default();
        let absent = if condition == "ABSENCE" { " (absent)" } else { "" };
        format!("{attribute}{key}{absent}")
    });
    let mut references: Vec<String> = references.collect();
    references.sort();
    references
}
