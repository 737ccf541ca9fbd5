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
    #[prost(message, optional, tag = "2")]
    destination: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    request: Option<Request>,
    #[prost(btree_map = "string, string", tag = "10")]
    context_extensions: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Peer {
    #[prost(message, optional, tag = "1")]
    address: Option<Address>,
    #[prost(string, tag = "4")]
    principal: String,
}

/// `envoy.config.core.v3.Address`
#[derive(Clone, PartialEq, Message)]
struct Address {
    #[prost(message, optional, tag = "1")]
    socket_address: Option<SocketAddress>,
}

#[derive(Clone, PartialEq, Message)]
struct SocketAddress {
    #[prost(string, tag = "2")]
    address: String,
    #[prost(uint32, tag = "3")]
    port_value: u32,
}

impl Peer {
    /// Returns an end of the connection, unless nothing is known about it.
    ///
    /// # Errors
    ///
    /// Fails if the port is not a number of 16 bits.
    fn new(address: String, port: String, principal: String) -> Result<Option<Self>, AskError> {
        let port_value = match port.parse::<u16>() {
            Ok(number) => u32::from(number),
            Err(_) if port.is_empty() => 0,
            Err(_) => return Err(AskError::Port(port)),
        };
        let address = (!address.is_empty())
            .then_some(Address { socket_address: Some(SocketAddress { address, port_value }) });
        Ok((address.is_some() || !principal.is_empty()).then_some(Self { address, principal }))
    }
}

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, optional, tag = "2")]
    http: Option<HttpAttributes>,
}

/// `AttributeContext.HttpRequest`
#[derive(Clone, PartialEq, Message)]
struct HttpAttributes {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    method: String,
    #[prost(btree_map = "string, string", tag = "3")]
    headers: BTreeMap<String, String>,
    #[prost(string, tag = "4")]
    path: String,
    #[prost(string, tag = "5")]
    host: String,
    #[prost(string, tag = "6")]
    scheme: String,
    #[prost(string, tag = "7")]
    query: String,
    #[prost(int64, tag = "9")]
    size: i64,
    #[prost(string, tag = "10")]
    protocol: String,
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
    #[prost(message, optional, tag = "3")]
    dynamic_metadata: Option<Struct>,
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
    /// `HeaderAppendAction`. The default, 0, means to append.
    #[prost(int32, tag = "3")]
    append_action: i32,
}

impl HeaderValueOption {
    fn into_operation(self, appends_by_default: bool) -> Option<HeaderOperation> {
        let (name, value) = self.header?.into_text();
        // Actions that depend on the client's header replace it: its value must not look like the service's.
        let appends = self.append.unwrap_or(appends_by_default && self.append_action == 0);
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
pub(super) fn request(http: &Http, url: &str, question: Question) -> Result<HttpRequest, AskError> {
    let Question { user, method, path, host, mut headers, body, extensions, depth } = question;
    let [source_ip, source_port, destination_ip, destination_port, id, scheme, query, protocol] = [
        ":source.ip",
        ":source.port",
        ":destination.ip",
        ":destination.port",
        ":id",
        ":scheme",
        ":query",
        ":protocol",
    ]
    .map(|property| headers.remove(property).unwrap_or_default());
    let source = Peer::new(source_ip, source_port, user)?;
    let destination = Peer::new(destination_ip, destination_port, String::new())?;
    let size = i64::try_from(body.len()).unwrap_or(i64::MAX);
    let http_attributes =
        HttpAttributes { id, method, headers, path, host, scheme, query, size, protocol, body };
    let request = Some(Request { http: Some(http_attributes) });
    let attributes = AttributeContext { source, destination, request, context_extensions: extensions };
    let message = CheckRequest { attributes: Some(attributes) };
    Ok(http.grpc(url, CHECK, &message).header(DEPTH, &depth.to_string()))
}

/// Reads the answer to a call.
pub(super) fn decision(answer: &HttpResponse) -> Result<Check, AskError> {
    answer.grpc::<CheckResponse>()?.into_check()
}

impl CheckResponse {
    /// Returns the decision. An answer without a status has none, although Envoy takes it for OK.
    fn into_check(self) -> Result<Check, AskError> {
        let status = self.status.ok_or(AskError::Undecided)?;
        if self.error_response.is_some() {
            return Err(AskError::Failed(status.message));
        }
        let mut ok = self.ok_response.unwrap_or_default();
        // As in Envoy, the deprecated field has precedence.
        let metadata = ok.dynamic_metadata.take().or(self.dynamic_metadata);
        let check = match (status.code, self.denied_response) {
            (0, None) => ok.into_check(),
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
        Ok(match metadata {
            Some(metadata) => check.with_metadata(&metadata),
            None => check,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

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

    #[test]
    fn the_action_of_a_header_counts_without_the_deprecated_field() {
        let operation = |append, append_action, appends_by_default| {
            let header = Header { key: "a".to_owned(), value: "b".to_owned(), raw_value: Vec::new() };
            let option = HeaderValueOption { header: Some(header), append, append_action };
            option.into_operation(appends_by_default).unwrap()
        };
        let (replaced, appended) = (HeaderOperation::replace("a", "b"), HeaderOperation::append("a", "b"));
        for appends_by_default in [false, true] {
            for action in 0..=3 {
                assert_eq!(operation(Some(true), action, appends_by_default), appended);
                assert_eq!(operation(Some(false), action, appends_by_default), replaced);
            }
            // ADD_IF_ABSENT, OVERWRITE_IF_EXISTS_OR_ADD, OVERWRITE_IF_EXISTS
            for action in 1..=3 {
                assert_eq!(operation(None, action, appends_by_default), replaced);
            }
        }
        assert_eq!([operation(None, 0, false), operation(None, 0, true)], [replaced, appended]);
    }

    #[test]
    fn deprecated_metadata_of_an_answer_that_allows_is_taken() {
        let metadata =
            |name: &str| Struct { fields: [(name.to_owned(), prost_types::Value::default())].into() };
        let check = |outer: Option<Struct>, inner: Option<Struct>| {
            let ok = OkHttpResponse { dynamic_metadata: inner, ..OkHttpResponse::default() };
            let response = CheckResponse {
                status: Some(Status::default()),
                ok_response: Some(ok),
                dynamic_metadata: outer,
                ..CheckResponse::default()
            };
            response.into_check().unwrap()
        };
        let (a, b) = (metadata("a"), metadata("b"));
        let expected = |metadata: &Struct| Check::allow().with_metadata(metadata);
        assert_eq!(check(None, Some(a.clone())), expected(&a));
        assert_eq!(check(Some(b.clone()), None), expected(&b));
        assert_eq!(check(Some(b), Some(a.clone())), expected(&a));
    }
}
