use prost::Message as _;

use crate::proto::istio::mixer::v1::{HeaderOperation, RouteDirective};
use mixer_adapter_core::proto::Status;

/// The merged answer to a check.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckAnswer {
    /// OK or the reason of the denial.
    pub status: Status,
    /// The duration for which the answer may be cached.
    pub valid_duration: prost_types::Duration,
    /// The number of requests for which the answer may be used.
    pub valid_use_count: i32,
    /// Header operations, or a direct response instead of the service's.
    pub directive: Option<RouteDirective>,
}

impl CheckAnswer {
    /// The approximate size in bytes of what it refers to.
    pub(crate) fn size(&self) -> usize {
        let directive = self.directive.as_ref();
        let operations = directive.map_or(0, |directive| {
            directive.request_header_operations.len() + directive.response_header_operations.len()
        });
        self.status.encoded_len()
            + directive.map_or(0, RouteDirective::encoded_len)
            + operations * size_of::<HeaderOperation>()
    }
}
