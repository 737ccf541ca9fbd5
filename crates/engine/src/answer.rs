use std::sync::Arc;

use prost::Message as _;

use crate::{
    dispatch::FailureTexts,
    proto::istio::mixer::v1::{HeaderOperation, RouteDirective},
};
use mixer_adapter_core::proto::Status;

/// The merged answer to a check.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckAnswer {
    /// OK or the reason of the denial.
    pub status: Status,
    /// The duration for which the answer may be cached.
    pub valid_duration: prost_types::Duration,
    /// The number of requests for which a client of the Mixer API may use the answer, merged as in Mixer: any negative number of
    /// an adapter, which means unlimited, takes precedence.
    pub valid_use_count: i32,
    /// The number of requests for which all adapters allow the answer; `None` if it is unlimited.
    pub max_uses: Option<i32>,
    /// Header operations, or a direct response instead of the service's.
    pub directive: Option<Arc<RouteDirective>>,
    /// The origin of the answer to a [strict](crate::dispatch::Request::strict) request.
    pub details: Arc<AnswerDetails>,
}

/// The origin of an answer, for access logs and rate limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerDetails {
    /// The full names of the rules that decided: whose adapters denied the request, or else all that apply.
    pub rules: Vec<Arc<str>>,
    /// The outputs of named actions with the names that header operations use, `ACTION.output.FIELD`.
    pub outputs: Vec<(String, String)>,
    /// The dimensions of quotas that apply to the request and have
    /// [`dimensions_in_metadata`](crate::QuotaSettings::dimensions_in_metadata).
    pub dimensions: Vec<QuotaDimensions>,
    /// The failures of other parts of a denied request. Such an answer is not cached.
    pub failures: FailureTexts,
    /// Metadata of adapters for the proxy: an encoded `google.protobuf.Struct`.
    pub metadata: Vec<u8>,
}

impl AnswerDetails {
    /// The approximate size in bytes.
    pub(crate) fn size(&self) -> usize {
        let dimensions = self.dimensions.iter().map(|QuotaDimensions { quota, values }| {
            size_of::<QuotaDimensions>() + quota.len() + pairs_size(values)
        });
        let rules = self.rules.len() * size_of::<Arc<str>>();
        size_of::<Self>()
            + rules
            + pairs_size(&self.outputs)
            + dimensions.sum::<usize>()
            + self.metadata.len()
    }
}

fn pairs_size(pairs: &[(String, String)]) -> usize {
    size_of_val(pairs) + pairs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
}

/// The dimensions of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaDimensions {
    /// The short name of the instance.
    pub quota: String,
    /// The values by name.
    pub values: Vec<(String, String)>,
}

impl CheckAnswer {
    /// The approximate size of its references in bytes.
    pub(crate) fn size(&self) -> usize {
        let operations = self.directive.as_ref().map_or(0, |directive| {
            directive.request_header_operations.len() + directive.response_header_operations.len()
        });
        self.encoded_len() + self.details.size() + operations * size_of::<HeaderOperation>()
    }

    /// The size of its encoded status and directive in bytes.
    pub(crate) fn encoded_len(&self) -> usize {
        self.status.encoded_len() + self.directive.as_ref().map_or(0, |directive| directive.encoded_len())
    }
}
