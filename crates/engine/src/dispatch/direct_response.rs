//! What answers of adapters change besides the outcome: the response to a denied client (docs/behaviour/adapter-calls.md#direct-responses), and
//! the headers of an allowed request, and the metadata for the proxy.

use prost::{DecodeError, Message as _, Name as _};
use prost_types::Struct;

use crate::proto::istio::mixer::v1::{HeaderOperation, RouteDirective, header_operation::Operation};
use mixer_adapter_core::proto::{Any, Status, istio::policy::v1beta1::DirectHttpResponse};

/// Returns whether a detail of a status is a direct response.
pub(super) fn is_direct_response(detail: &Any) -> bool {
    // Mixer ignores a type URL without a slash (docs/behaviour/adapter-calls.md#direct-responses).
    let name = detail.type_url.rsplit_once('/').map(|(_, name)| name);
    name == Some("istio.policy.v1beta1.DirectHttpResponse")
}

/// Extracts the direct response from the details of a denial.
pub(super) fn direct_response(status: &Status) -> Option<RouteDirective> {
    let detail = status.details.iter().find(|detail| is_direct_response(detail))?;
    let response = DirectHttpResponse::decode(detail.value.clone()).ok()?;
    let code = match response.code {
        0 => http_code(status.code),
        code => u32::try_from(code).unwrap_or(500),
    };
    let mut operations = Vec::new();
    for (name, value) in response.headers {
        let (values, operation) = if name.eq_ignore_ascii_case("set-cookie") {
            (value.split(',').map(str::to_owned).collect(), Operation::Append as i32)
        } else {
            (vec![value], Operation::Replace as i32)
        };
        let named = values.into_iter().map(|value| HeaderOperation { name: name.clone(), value, operation });
        operations.extend(named);
    }
    Some(RouteDirective {
        request_header_operations: Vec::new(),
        response_header_operations: operations,
        direct_response_code: code,
        direct_response_body: response.body,
    })
}

/// Extracts the header operations from the `RouteDirective` in the details of an answer that allows.
pub(super) fn header_operations(status: &Status) -> Result<Option<RouteDirective>, DecodeError> {
    let mut details = status.details.iter();
    let Some(detail) = details.find(|detail| detail.message_name() == RouteDirective::full_name()) else {
        return Ok(None);
    };
    let directive = RouteDirective::decode(detail.value.clone())?;
    Ok(Some(RouteDirective { direct_response_code: 0, direct_response_body: String::new(), ..directive }))
}

/// The longest metadata of an answer in bytes.
const MAX_METADATA: usize = 16 << 10;

/// Removes the metadata for the proxy, which clients must not receive, from the details of an answer: each `google.protobuf.Struct`.
pub(super) fn take_metadata(status: &mut Status) -> Result<Struct, tonic::Status> {
    if !status.details.iter().any(is_metadata) {
        return Ok(Struct::default());
    }
    let (metadata, details) = std::mem::take(&mut status.details).into_iter().partition(is_metadata);
    let metadata: Vec<Any> = metadata;
    status.details = details;
    let encoded = metadata.iter().map(|detail| &*detail.value).collect::<Vec<_>>().concat();
    if encoded.len() > MAX_METADATA {
        let error =
            format!("the answer has {} bytes of metadata; the limit is {MAX_METADATA}", encoded.len());
        return Err(tonic::Status::internal(error));
    }
    Struct::decode(&*encoded).map_err(undecodable)
}

fn is_metadata(detail: &Any) -> bool {
    detail.message_name() == "google.protobuf.Struct"
}

/// The failure of a call whose answer is invalid.
pub(super) fn undecodable(error: DecodeError) -> tonic::Status {
    tonic::Status::internal(format!("the answer cannot be decoded: {error}"))
}

/// Maps a code of `google.rpc` to an HTTP status (docs/behaviour/adapter-calls.md#http-status-of-a-code).
pub(super) fn http_code(code: i32) -> u32 {
    match code {
        0 => 200,
        1 => 408,
        3 | 11 => 400,
        4 => 504,
        5 => 404,
        6 | 10 => 409,
        7 => 403,
        8 => 429,
        9 => 412,
        12 => 501,
        14 => 503,
        16 => 401,
        _ => 500,
    }
}
