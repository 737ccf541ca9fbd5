//! What a sink says to a source.

use tonic::{Code, Status};

use crate::{
    MAX_TEXT,
    proto::istio::mcp::v1alpha1::{RequestResources, SinkNode},
    truncate,
};
use mixer_adapter_core::proto::{self};

/// Asks for a collection.
pub(super) fn request(node: &SinkNode, collection: &str) -> RequestResources {
    RequestResources {
        sink_node: Some(node.clone()),
        collection: collection.to_owned(),
        ..RequestResources::default()
    }
}

/// Refuses a push of the collection that is asked for. Long texts are cut: a peer may close the stream because of one.
pub(super) fn nack_request(
    request: RequestResources,
    nonce: String,
    code: Code,
    message: &str,
) -> RequestResources {
    let error =
        proto::Status { code: code as i32, message: truncate(message, MAX_TEXT), details: Vec::new() };
    RequestResources { response_nonce: nonce, error_detail: Some(error), ..request }
}

/// The collection a source ended a stream for (docs/behaviour/mcp.md#unknown-collections).
pub(super) fn unsupported_collection(status: &Status) -> Option<&str> {
    let quoted = status.message().strip_prefix("unsupported collection ")?;
    (status.code() == Code::InvalidArgument).then(|| quoted.trim_matches('"'))
}
