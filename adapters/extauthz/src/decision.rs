//! Answers of the service.

use mixer_adapter_core::{Check, DirectHttpResponse, proto::Status};
use prost::{Message, Name};

/// The maximum length of the body of a denial in bytes.
const MAX_BODY: usize = 64 << 10;

/// `istio.mixer.v1.RouteDirective`: header operations as a detail of an answer that allows.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RouteDirective {
    #[prost(message, repeated, tag = "1")]
    pub(super) request: Vec<HeaderOperation>,
    #[prost(message, repeated, tag = "2")]
    pub(super) response: Vec<HeaderOperation>,
}

impl Name for RouteDirective {
    const NAME: &str = "RouteDirective";
    const PACKAGE: &str = "istio.mixer.v1";
}

/// `istio.mixer.v1.HeaderOperation`
#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderOperation {
    /// A name that begins with `?` names a parameter of the query.
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(enumeration = "Operation", tag = "3")]
    operation: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Operation {
    Replace = 0,
    Remove = 1,
    Append = 2,
}

impl HeaderOperation {
    pub(super) fn new(operation: Operation, name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into(), operation: operation.into() }
    }
}

/// Allows the request, with changes of its headers.
pub(super) fn allow(operations: &RouteDirective) -> Check {
    if *operations == RouteDirective::default() { Check::allow() } else { Check::allow().detail(operations) }
}

/// Denies the request with a code, which must not be OK, and the response to the client.
pub(super) fn deny(code: i32, message: String, response: Option<&DirectHttpResponse>) -> Check {
    let denial = Check::from_status(Status { code, message, details: Vec::new() });
    match response {
        Some(response) => denial.with_direct_response(response),
        None => denial,
    }
}

/// Makes the response to the client.
pub(super) fn client_response(
    status: i32,
    headers: impl IntoIterator<Item = (String, String)>,
    body: &str,
) -> DirectHttpResponse {
    let mut response = DirectHttpResponse {
        code: status,
        body: body[..body.floor_char_boundary(MAX_BODY)].to_owned(),
        ..DirectHttpResponse::default()
    };
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        // Cookies are separated by commas, and dates of the attribute `expires` are valid without theirs (RFC 6265, section 5.1.1).
        let (value, separator) =
            if name == "set-cookie" { (value.replace(", ", " "), ",") } else { (value, ", ") };
        response
            .headers
            .entry(name)
            .and_modify(|all| {
                all.push_str(separator);
                all.push_str(&value);
            })
            .or_insert(value);
    }
    response
}
