use std::time::Duration;

use super::references::{self, ReferencedAttribute};
use mixer_adapter_core::proto::{CheckResult, Status};
use mixer_adapter_engine::proto::istio::mixer::v1::{RouteDirective, check_response::PreconditionResult};

/// The answer to a check, by one adapter or by a Mixer, which merges all adapters' answers.
#[derive(Clone, Default, PartialEq)]
pub struct Verdict {
    pub(super) status: Status,
    pub(super) valid_duration: Option<prost_types::Duration>,
    pub(super) valid_use_count: i32,
    pub(super) directive: Option<RouteDirective>,
    /// `None` in the answer of an adapter.
    pub(super) references: Option<Vec<ReferencedAttribute>>,
}

impl Verdict {
    /// Whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.status.code == 0
    }

    /// OK, or the reason of a denial. The engine writes the handler's name before an adapter's message.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// How long the answer may be cached; zero where the answer has a negative duration.
    pub fn valid_duration(&self) -> Duration {
        self.valid_duration.and_then(|duration| duration.try_into().ok()).unwrap_or_default()
    }

    /// How many requests a cached answer may be used for; a negative number is no limit.
    pub fn valid_use_count(&self) -> i32 {
        self.valid_use_count
    }

    /// The header operations and the direct response that a Mixer requests from the proxy.
    pub fn directive(&self) -> Option<&RouteDirective> {
        self.directive.as_ref()
    }

    /// The attributes that a Mixer's answer depends on, sorted: `request.path`, `request.headers["x-user"]`, and
    /// `request.host (absent)` for an attribute that the request does not have.
    pub fn references(&self) -> Vec<String> {
        let references = self.references.iter().flatten().map(|reference| {
            let key = reference.key.as_ref().map(|key| format!("[{key:?}]")).unwrap_or_default();
            let absent = if reference.condition == "ABSENCE" { " (absent)" } else { "" };
            format!("{}{key}{absent}", reference.name)
        });
        let mut references: Vec<String> = references.collect();
        references.sort();
        references
    }
}

impl From<CheckResult> for Verdict {
    fn from(result: CheckResult) -> Self {
        Self {
            status: result.status.unwrap_or_default(),
            valid_duration: result.valid_duration,
            valid_use_count: result.valid_use_count,
            ..Self::default()
        }
    }
}

impl From<PreconditionResult> for Verdict {
    fn from(result: PreconditionResult) -> Self {
        Self {
            status: result.status.unwrap_or_default(),
            valid_duration: result.valid_duration,
            valid_use_count: result.valid_use_count,
            directive: result.route_directive,
            references: Some(references::decode(&result.referenced_attributes.unwrap_or_default())),
        }
    }
}
