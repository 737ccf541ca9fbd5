//! `envoy.service.auth.v3.Authorization`: the fields that are written and read here.

use std::collections::BTreeMap;

use mixer_adapter_core::{
    Check,
    adapter::{HeaderOperation, Http, HttpRequest, HttpResponse},
    proto::Status,
};
use prost::Message;
use prost_types::Struct;

use super::{
    decision::{client_response, deny},
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
    #[prost(int64, tag = "9")]
    size: i64,
    #[prost(string, tag = "11")]
    body: String,
}

/// `CheckResponse`. Several responses are not an error of the protocol: the status decides.
#[derive(Clone, PartialEq, Message)]
struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<Status>,
    #[prost(message, optional, tag = "2")]
    denied_response: Option<DeniedHttpResponse>,
    #[prost(message, optional, tag = "3")]
    ok_response: Option<OkHttpResponse>,
    #[prost(message, optional, tag = "4")]
    dynamic_metadata: Option<Struct>,
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
struct OkHttpResponse {
    #[prost(message, repeated, tag = "2")]
    headers: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "5")]
    headers_to_remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    response_headers_to_add: Vec<HeaderValueOption>,
    #[prost(message, repeated, tag = "7")]
    query_parameters_to_set: Vec<QueryParameter>,
    #[prost(string, repeated, tag = "8")]
    query_parameters_to_remove: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct QueryParameter {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
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
    /// `google.protobuf.BoolValue`
    #[prost(message, optional, tag = "2")]
    append: Option<bool>,
}

impl HeaderValueOption {
    fn into_operation(self, appends_by_default: bool) -> Option<HeaderOperation> {
        let (name, value) = self.header?.into_text();
        let appends = self.append.unwrap_or(appends_by_default);
        Some(if appends {
            HeaderOperation::append(name, value)
        } else {
            HeaderOperation::replace(name, value)
        })
    }
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

impl Header {
    fn into_text(self) -> (String, String) {
        let raw = String::from_utf8_lossy(&self.raw_value).into_owned();
        (self.key, if raw.is_empty() { self.value } else { raw })
    }
}

impl OkHttpResponse {
    /// Envoy replaces headers of the request and adds headers to the response, unless the service says otherwise.
    fn into_check(self) -> Check {
        let parameters = self.query_parameters_to_set.into_iter();
        let set = parameters.map(|set| HeaderOperation::replace(format!("?{}", set.key), set.value));
        let headers = self.headers.into_iter().filter_map(|header| header.into_operation(false));
        let parameters = self.query_parameters_to_remove.into_iter();
        let parameters = parameters.map(|name| HeaderOperation::remove(format!("?{name}")));
        let added = self.response_headers_to_add.into_iter();
        let response = added.filter_map(|header| header.into_operation(true)).collect();
        let removed = self.headers_to_remove.into_iter().map(HeaderOperation::remove);
        let request = removed.chain(headers).chain(parameters).chain(set);
        Check::allow().with_header_operations(request.collect(), response)
    }
}

/// Makes the call of a question.
pub(super) fn request(http: &Http, url: &str, question: Question) -> HttpRequest {
    let Question { user, method, path, host, headers, body, extensions, depth } = question;
    let source = (!user.is_empty()).then_some(Peer { principal: user });
    let size = i64::try_from(body.len()).unwrap_or(i64::MAX);
    let request = Request { http: Some(HttpAttributes { method, headers, path, host, size, body }) };
    let attributes = AttributeContext { source, request: Some(request), context_extensions: extensions };
    let message = CheckRequest { attributes: Some(attributes) };
    http.grpc(url, CHECK, &message).header(DEPTH, &depth.to_string())
}

/// Reads the answer to a call. An answer without a status is no decision, although Envoy takes it for OK.
pub(super) fn decision(answer: &HttpResponse) -> Result<Check, AskError> {
    let response = answer.grpc::<CheckResponse>()?;
    let status = response.status.ok_or(AskError::Undecided)?;
    if response.error_response.is_some() {
        return Err(AskError::Failed(status.message));
    }
    let check = match (status.code, response.denied_response) {
        (0, None) => response.ok_response.unwrap_or_default().into_check(),
        (0, Some(_)) => return Err(AskError::Undecided),
        (code, denied) => {
            let response = denied.map(|denied| {
                let headers = denied.headers.into_iter().filter_map(|option| option.header);
                let headers = headers.map(Header::into_text);
                client_response(denied.status.map_or(0, |status| status.code), headers, &denied.body)
            });
            deny(code, status.message, response.as_ref())
        }
    };
    Ok(match response.dynamic_metadata {
        Some(metadata) => check.with_metadata(&metadata),
        None => check,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_the_query_are_set_and_removed_by_header_operations() {
        let parameter = QueryParameter { key: "tenant".to_owned(), value: "shop".to_owned() };
        let ok = OkHttpResponse {
            query_parameters_to_set: vec![parameter],
            query_parameters_to_remove: vec!["debug".to_owned()],
            ..OkHttpResponse::default()
        };
        let expected = vec![HeaderOperation::remove("?debug"), HeaderOperation::replace("?tenant", "shop")];
        assert_eq!(ok.into_check(), Check::allow().with_header_operations(expected, Vec::new()));
    }
}
