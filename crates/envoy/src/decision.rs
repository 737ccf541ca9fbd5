//! Decisions on requests, and the answers to Envoy.

use std::{borrow::Cow, cell::OnceCell};

use bytes::Bytes;
use mixer_adapter_core::proto::Status as RpcStatus;
use mixer_adapter_engine::{
    EncodedParts, dispatch,
    proto::istio::mixer::v1::{HeaderOperation, RouteDirective, header_operation::Operation},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use prost::Message;
use tonic::{Code, Status};

use crate::{
    AuthorizationAnswer, EncodedResponse, FailureAnswer,
    attributes::is_grpc,
    denial::denied_response,
    headers::{HeaderError, append, removed_header, replace, request_header, response_header},
    proto::envoy::{
        config::core::v3::HeaderValueOption,
        service::auth::v3::{DeniedHttpResponse, OkHttpResponse, attribute_context::HttpRequest},
        r#type::v3::HttpStatus,
    },
    request_headers::RequestHeaders,
    status::grpc_code,
};

/// The decision on a request. It has no default: a missing decision is a failure.
#[derive(Debug)]
pub(crate) enum Decision {
    /// The request is allowed, with changes of its headers: an encoded [`OkHttpResponse`].
    Allow(Bytes),
    /// An adapter denied the request. The second status, which Envoy receives, and the [`DeniedHttpResponse`] are encoded.
    Deny(RpcStatus, [Bytes; 2]),
    /// The request could not be checked.
    Fail(String),
}

/// The parts of a request that determine the form of its answer.
#[derive(Debug)]
pub(crate) struct Client<'r> {
    /// `None` for a connection.
    http: Option<&'r HttpRequest>,
    /// Read on first use: few answers depend on them. `None` for a request that could not be checked because of them.
    headers: OnceCell<Option<RequestHeaders<'r>>>,
}

impl<'r> Client<'r> {
    pub(crate) fn new(http: Option<&'r HttpRequest>) -> Self {
        Self { http, headers: OnceCell::new() }
    }

    pub(crate) fn is_grpc(&self) -> bool {
        is_grpc(self.header("content-type").as_deref())
    }

    fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        let http = self.http?;
        self.headers.get_or_init(|| RequestHeaders::of(http).ok()).as_ref()?.get(name)
    }

    fn path(&self) -> &str {
        self.http.map_or("", |http| &http.path)
    }
}

impl Decision {
    /// Decides by the engine's answer. An allowed request whose header operations cannot be applied has failed: without them it
    /// is not the request that the rules allowed. Requests with the same cached answer share its encoded `parts`.
    pub(crate) fn new(
        answer: dispatch::CheckAnswer,
        client: &Client<'_>,
        parts: Option<&EncodedParts>,
    ) -> Self {
        let none = RouteDirective::default();
        let directive = answer.directive.as_deref().unwrap_or(&none);
        let is_allowed = answer.status.code == 0;
        let shared = parts
            .filter(|_| !is_allowed || !depends_on_request(directive))
            .map(|parts| &parts.responses[usize::from(!is_allowed && client.is_grpc())]);
        let encoded = match shared.and_then(|shared| shared.get()) {
            Some(encoded) => encoded.clone(),
            None => match encode(&answer.status, directive, client) {
                Ok(encoded) => match shared {
                    Some(shared) => shared.get_or_init(|| encoded).clone(),
                    None => encoded,
                },
                Err(error) => {
                    let rules = answer.details.rules.join(", ");
                    return Self::Fail(format!("{error} (set by one of the rules {rules})"));
                }
            },
        };
        match encoded {
            [_, changes] if is_allowed => Self::Allow(changes),
            encoded => Self::Deny(answer.status, encoded),
        }
    }

    /// The code and the message of a denial or a failure.
    pub(crate) fn denial(&self) -> Option<(i32, &str)> {
        match self {
            Self::Allow(_) => None,
            Self::Deny(status, _) => Some((grpc_code(status.code), &status.message)),
            Self::Fail(reason) => Some((Code::Unavailable.into(), reason)),
        }
    }

    /// Makes the answer, with an additional header of the request and of the response. Every one has an explicit status, because the
    /// default of Envoy's message allows.
    pub(crate) fn into_response(
        self,
        failure_answer: FailureAnswer,
        metadata: Vec<u8>,
        header: Option<(&str, &str)>,
    ) -> Result<AuthorizationAnswer, Status> {
        let headers: Vec<_> =
            header.map(|(name, value)| replace(name.to_owned(), value)).into_iter().collect();
        let (status, response) = match self {
            Self::Allow(changes) => {
                let added = OkHttpResponse {
                    headers: headers.clone(),
                    response_headers_to_add: headers,
                    ..OkHttpResponse::default()
                };
                (Bytes::new(), EncodedResponse::Allowed(merged(changes, &added)))
            }
            Self::Deny(_, [status, denied]) => {
                let added = DeniedHttpResponse { headers, ..DeniedHttpResponse::default() };
                (status, EncodedResponse::Denied(merged(denied, &added)))
            }
            Self::Fail(reason) => match failure_answer {
                FailureAnswer::Unavailable => return Err(Status::unavailable(reason)),
                FailureAnswer::ErrorResponse => {
                    let status =
                        RpcStatus { code: Code::Unavailable.into(), message: reason, details: Vec::new() };
                    let response = DeniedHttpResponse {
                        status: Some(HttpStatus { code: 503 }),
                        headers,
                        ..DeniedHttpResponse::default()
                    };
                    (status.encode_to_vec().into(), EncodedResponse::Failed(response.encode_to_vec().into()))
                }
            },
        };
        Ok(AuthorizationAnswer {
            status: Some(status),
            http_response: Some(response),
            dynamic_metadata: metadata,
        })
    }
}

/// Encodes the status that Envoy receives, and the response.
fn encode(
    status: &RpcStatus,
    directive: &RouteDirective,
    client: &Client<'_>,
) -> Result<[Bytes; 2], HeaderError> {
    if status.code == 0 {
        return Ok([Bytes::new(), changes(directive, client)?.encode_to_vec().into()]);
    }
    let response = denied_response(status, directive, client);
    let status = RpcStatus { code: grpc_code(status.code), ..status.clone() };
    Ok([status.encode_to_vec().into(), response.encode_to_vec().into()])
}

/// Adds the elements of a message to the lists of an encoded one: the encoding of both is one after the other.
fn merged(encoded: Bytes, added: &impl Message) -> Bytes {
    let length = added.encoded_len();
    if length == 0 {
        return encoded;
    }
    let mut merged = Vec::with_capacity(encoded.len() + length);
    merged.extend_from_slice(&encoded);
    added.encode_raw(&mut merged);
    merged.into()
}

/// The operation prefix of query parameters: `?user` is the parameter `user`.
const PARAMETER: char = '?';

const PATH: &str = ":path";

/// Returns whether the changes of an allowed request depend on its headers or its path.
fn depends_on_request(directive: &RouteDirective) -> bool {
    let mut operations = directive.request_header_operations.iter();
    operations
        .any(|operation| operation.operation() == Operation::Append || operation.name.starts_with(PARAMETER))
}

/// Returns the changes of an allowed request.
fn changes(directive: &RouteDirective, client: &Client<'_>) -> Result<OkHttpResponse, HeaderError> {
    let mut changes = OkHttpResponse::default();
    let mut path: Option<String> = None;
    for operation in &directive.request_header_operations {
        let HeaderOperation { name, value, .. } = operation;
        if let Some(parameter) = name.strip_prefix(PARAMETER) {
            let path = path.get_or_insert_with(|| client.path().to_owned());
            *path = change_query(path, parameter, operation);
            continue;
        }
        match operation.operation() {
            // Envoy sets headers, then appends to them, then removes some, in whatever order they are.
            Operation::Remove => {
                let name = removed_header(name)?;
                changes.headers.retain(|header| !has_name(header, &name));
                take(&mut changes.headers_to_remove, &name);
                changes.headers_to_remove.push(name);
            }
            Operation::Replace => {
                let name = request_header(name, value)?;
                if name == PATH {
                    path = Some(value.clone());
                } else {
                    changes.headers.retain(|header| !has_name(header, &name));
                    take(&mut changes.headers_to_remove, &name);
                    changes.headers.push(replace(name, value));
                }
            }
            Operation::Append => {
                let name = request_header(name, value)?;
                let is_of_client =
                    !take(&mut changes.headers_to_remove, &name) && client.header(&name).is_some();
                // Envoy drops values to append to a header that does not exist.
                let exists = is_of_client || changes.headers.iter().any(|header| has_name(header, &name));
                let header = if exists { append(name, value) } else { replace(name, value) };
                changes.headers.push(header);
            }
        }
    }
    if let Some(path) = path {
        changes.headers.push(replace(PATH.to_owned(), &path));
    }
    for operation in &directive.response_header_operations {
        let HeaderOperation { name, value, .. } = operation;
        match operation.operation() {
            Operation::Remove => {
                let header = name;
                tracing::warn!(header, "a header of a response cannot be removed by external authorization");
            }
            Operation::Replace => {
                let name = response_header(name, value)?;
                changes.response_headers_to_add.push(replace(name, value));
            }
            Operation::Append => {
                let name = response_header(name, value)?;
                changes.response_headers_to_add.push(append(name, value));
            }
        }
    }
    Ok(changes)
}

/// Returns a path with another value of a parameter of its query, or without the parameter. Envoy's own changes of the query
/// write values as they are, or reject values with characters that need encoding.
fn change_query(path: &str, parameter: &str, operation: &HeaderOperation) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let [name, value] =
        [parameter, &operation.value].map(|text| utf8_percent_encode(text, PARAMETER_TEXT).to_string());
    let operation = operation.operation();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let present =
        pairs.filter(|pair| operation == Operation::Append || pair.split('=').next() != Some(name.as_str()));
    let mut pairs: Vec<String> = present.map(str::to_owned).collect();
    if operation != Operation::Remove {
        pairs.push(format!("{name}={value}"));
    }
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

const PARAMETER_TEXT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Takes a name out of a list, and returns whether it was there.
fn take(names: &mut Vec<String>, name: &str) -> bool {
    let before = names.len();
    names.retain(|known| known != name);
    names.len() < before
}

fn has_name(header: &HeaderValueOption, name: &str) -> bool {
    header.header.as_ref().is_some_and(|header| header.key == name)
}

#[cfg(test)]
mod tests;
