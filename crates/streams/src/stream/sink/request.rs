//! The requests of a sink to a source.

use tonic::{Code, Status};

use crate::{
    proto::istio::mcp::v1alpha1::{RequestResources, SinkNode},
    stream::type_url::type_urls_of,
};
use mixer_adapter_config::{Collection, MAX_TEXT, truncate};
use mixer_adapter_core::proto::{self};

/// Requests a collection.
pub(super) fn request(node: &SinkNode, collection: &str) -> RequestResources {
    RequestResources {
        sink_node: Some(node.clone()),
        collection: collection.to_owned(),
        ..RequestResources::default()
    }
}

/// Refuses a push of the requested collection. Long texts are cut: a peer may close the stream because of one.
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

/// Returns whether a source ended a stream because it does not have a collection
/// (docs/behaviour/mcp.md#unknown-collections). It sends INVALID_ARGUMENT with the text of Galley, or UNIMPLEMENTED
/// with the name or type URL of the collection. NOT_FOUND is tried again: servers also use it for resources that do not
/// exist yet.
///
/// A text without the name does not count: it may come from a server or proxy that does not implement the protocol.
pub(super) fn is_unsupported(status: &Status, collection: &str) -> bool {
    let text = match status.code() {
        Code::InvalidArgument => status.message().strip_prefix("unsupported collection ").unwrap_or_default(),
        Code::Unimplemented => status.message(),
        _ => return false,
    };
    let type_urls = type_urls_of(&Collection::new(collection));
    // A collection with several type URLs may have resources of another one.
    let type_url = type_urls.first().filter(|_| type_urls.len() == 1);
    let words = text
        .split(|c: char| !c.is_ascii_alphanumeric() && !"/._-".contains(c))
        .map(|word| word.trim_end_matches('.'));
    words.into_iter().any(|word| word == collection || type_url.is_some_and(|url| url == word))
}
