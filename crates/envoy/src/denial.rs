//! The response to a denied request.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use mixer_adapter_core::{framework::status::status_name, proto::Status as RpcStatus};
use mixer_adapter_engine::proto::istio::mixer::v1::{HeaderOperation, RouteDirective};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use prost::Message as _;

use crate::{
    decision::Client,
    headers::{replace, response_header},
    proto::envoy::{service::auth::v3::DeniedHttpResponse, r#type::v3::HttpStatus},
    status::{final_status, grpc_code, http_status},
};

/// Returns the response to a denied request. A header that must not be sent is omitted: the request remains denied.
pub(crate) fn denied_response(
    status: &RpcStatus,
    directive: &RouteDirective,
    client: &Client<'_>,
) -> DeniedHttpResponse {
    let code = match directive.direct_response_code {
        0 => http_status(status.code),
        code => final_status(code),
    };
    let mut headers = Vec::new();
    for HeaderOperation { name, value, .. } in &directive.response_header_operations {
        match response_header(name, value) {
            Ok(name) if client.is_grpc() && GRPC_HEADERS.contains(&name.as_str()) => {}
            // One entry per line: Envoy drops entries to append.
            Ok(name) => headers.push(replace(name, value)),
            Err(error) => {
                tracing::warn!(denial = status.message, %error, "a header of a denied response was left out");
            }
        }
    }
    let body = match &*directive.direct_response_body {
        "" => format!("{}:{}", status_name(grpc_code(status.code)), status.message),
        body => body.to_owned(),
    };
    if client.is_grpc() {
        // Envoy would derive another code from the HTTP status. It takes the message from the body; the header is for grpc-web
        // behind an Envoy that does not translate it.
        headers.push(replace("grpc-status".to_owned(), &grpc_code(status.code).to_string()));
        let message = utf8_percent_encode(&body, GRPC_MESSAGE).to_string();
        headers.push(replace("grpc-message".to_owned(), &message));
        if !status.details.is_empty() {
            let details = RpcStatus { code: grpc_code(status.code), ..status.clone() };
            let details = STANDARD_NO_PAD.encode(details.encode_to_vec());
            headers.push(replace("grpc-status-details-bin".to_owned(), &details));
        }
    }
    DeniedHttpResponse { status: Some(HttpStatus { code }), headers, body }
}

/// The headers of a denial to a client of gRPC that only this server sets, and the type of another body.
const GRPC_HEADERS: [&str; 4] = ["content-type", "grpc-message", "grpc-status", "grpc-status-details-bin"];

/// The bytes that gRPC encodes in the text of a status: everything but printable ASCII, and the percent sign.
const GRPC_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');
