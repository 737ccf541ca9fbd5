//! `envoy.service.auth.v3.Authorization`: the fields that are written and read here.

use std::collections::BTreeMap;

use mixer_adapter_core::{
    adapter::{Http, HttpRequest, HttpResponse},
    proto::Status,
};
use prost::Message;

use super::{
    decision::{Decision, client_response},
    error::AskError,
    question::{DEPTH, Question},
};

const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

/// `CheckRequest`
#[derive(Clone, PartialEq, Message)]
struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    attributes: Option<AttributeContext>,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeContext {
    #[prost(message, optional, tag = "1")]
    source: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    request: Option<Request>,
    #[prost(btree_map = "string, string", tag = "10")]
    context_extensions: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Peer {
    #[prost(string, tag = "4")]
    principal: String,
}

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, optional, tag = "2")]
    http: Option<HttpAttributes>,
}

/// `AttributeContext.HttpRequest`
#[derive(Clone, PartialEq, Message)]
struct HttpAttributes {
    #[prost(string, tag = "2")]
    method: String,
    #[prost(btree_map = "string, string", tag = "3")]
    headers: BTreeMap<String, String>,
    #[prost(string, tag = "4")]
    path: String,
    #[prost(string, tag = "5")]
    host: String,
}

/// `CheckResponse`. Several responses are not an error of the protocol: the status decides.
#[derive(Clone, PartialEq, Message)]
struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<Status>,
    #[prost(message, optional, tag = "2")]
    denied_response: Option<DeniedHttpResponse>,
    #[prost(message, optional, tag = "5")]
    error_response: Option<DeniedHttpResponse>,
}

#[derive(Clone, PartialEq, Message)]
struct DeniedHttpResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<HttpStatus>,
    #[prost(message, repeated, tag = "2")]
    headers: Vec<HeaderValueOption>,
    #[prost(string, tag = "3")]
    body: String,
}

#[derive(Clone, PartialEq, Message)]
struct HttpStatus {
    #[prost(int32, tag = "1")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
}

/// `HeaderValue`
#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
    /// The value in place of `value`.
    #[prost(bytes = "vec", tag = "3")]
    raw_value: Vec<u8>,
}

/// Makes the call of a question.
pub(super) fn request(http: &Http, url: &str, question: Question) -> HttpRequest {
    let Question { user, method, path, host, headers, extensions, depth } = question;
    let source = (!user.is_empty()).then_some(Peer { principal: user });
    let request = Request { http: Some(HttpAttributes { method, headers, path, host }) };
    let attributes = AttributeContext { source, request: Some(request), context_extensions: extensions };
    let message = CheckRequest { attributes: Some(attributes) };
    http.grpc(url, CHECK, &message).header(DEPTH, &depth.to_string())
}

/// Reads the answer to a call. An answer without a status is no decision, although Envoy takes it for OK.
pub(super) fn decision(answer: &HttpResponse) -> Result<Decision, AskError> {
    let message = answer.grpc::<CheckResponse>();
    let response =
        message.map_err(if is_outage(answer) { AskError::Unavailable } else { AskError::Rejected })?;
    let status = response.status.ok_or(AskError::Undecided)?;
    if response.error_response.is_some() {
        return Err(AskError::Failed(status.message));
    }
    if status.code == 0 {
        return if response.denied_response.is_none() {
            Ok(Decision::Allowed)
        } else {
            Err(AskError::Undecided)
        };
    }
    let response = response.denied_response.map(|denied| {
        let headers = denied.headers.into_iter().filter_map(|option| option.header);
        let headers = headers.map(|Header { key, value, raw_value }| {
            let raw = String::from_utf8_lossy(&raw_value).into_owned();
            (key, if raw.is_empty() { value } else { raw })
        });
        client_response(denied.status.map_or(0, |status| status.code), headers, &denied.body)
    });
    Ok(Decision::Denied { code: status.code, message: status.message, response })
}

/// Returns whether a failed call was not the fault of the question.
fn is_outage(answer: &HttpResponse) -> bool {
    match answer.header("grpc-status") {
        // CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, ABORTED, INTERNAL, UNAVAILABLE
        Some(code) => ["1", "2", "4", "8", "10", "13", "14"].contains(&code),
        None => answer.status().is_server_error(),
    }
}
