//! Attributes of checks.

mod metadata;
mod request;

use std::sync::Arc;

use bytes::Bytes;
use mixer_adapter_engine::attribute::{AttributeValue, Bag, UsedSlots};
use prost_types::{ListValue, Struct, Timestamp, Value, value::Kind};

use super::{Attributes, all, ip, socket, texts, vocabulary};
use crate::{
    attributes::{AttributeError, check_attributes},
    options::MappingOptions,
    proto::envoy::{
        config::core::v3::{HeaderMap, HeaderValue, Metadata},
        service::auth::v3::{
            AttributeContext,
            attribute_context::{HttpRequest, Peer, Request, TlsSession},
        },
    },
    proto::header_entry,
};

fn mapped(context: &AttributeContext, options: &MappingOptions) -> Result<Attributes, AttributeError> {
    let bag = check_attributes(context, Bag::new(vocabulary()), options)?;
    let mut attributes = all(&bag);
    // The time of the test.
    assert!(matches!(attributes.remove("context.time"), Some(AttributeValue::Timestamp(_))));
    Ok(attributes)
}

fn attributes(context: &AttributeContext) -> Attributes {
    mapped(context, &MappingOptions::default()).unwrap()
}

fn http(http: HttpRequest) -> AttributeContext {
    let request = Request { time: None, http: Some(http) };
    AttributeContext { request: Some(request), ..AttributeContext::default() }
}

fn entries(headers: &[(&str, &str)]) -> Vec<Bytes> {
    headers.iter().map(|(name, value)| header_entry((*name).to_owned(), (*value).to_owned())).collect()
}

fn with_headers(headers: &[(&str, &str)]) -> HttpRequest {
    HttpRequest { headers: entries(headers), ..HttpRequest::default() }
}

fn peer(address: &str, port: u32) -> Peer {
    Peer { address: socket(address, port), ..Peer::default() }
}

fn named(principal: &str) -> Peer {
    Peer { principal: principal.to_owned(), ..Peer::default() }
}

fn text(value: &str) -> Value {
    Value { kind: Some(Kind::StringValue(value.to_owned())) }
}

fn fields(fields: &[(&str, Value)]) -> Struct {
    Struct { fields: fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect() }
}

fn nested(values: Struct) -> Value {
    Value { kind: Some(Kind::StructValue(values)) }
}

fn metadata(filters: &[(&str, Struct)]) -> Option<Metadata> {
    let filters = filters.iter().map(|(name, values)| ((*name).to_owned(), values.clone()));
    Some(Metadata { filter_metadata: filters.collect() })
}

/// Checks that a message has these attributes, and none of the names.
fn assert_has(context: &AttributeContext, expected: &[(&str, AttributeValue)], absent: &[&str]) {
    super::assert_has(&attributes(context), expected, absent);
}
