//! The tables of attributes in docs/envoy/attributes.md, row by row.
#![allow(clippy::unwrap_used)]

mod check;
mod log;
mod recorded;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use mixer_adapter_core::value::ValueType;
use mixer_adapter_engine::attribute::{AttributeValue, Bag, Vocabulary};

use crate::proto::envoy::config::core::v3::{Address, SocketAddress, address, socket_address};

type Attributes = BTreeMap<String, AttributeValue>;

fn vocabulary() -> Arc<Vocabulary> {
    let mut vocabulary = Vocabulary::new();
    vocabulary.declare_standard();
    for (name, value_type) in [
        ("request.body", ValueType::String),
        ("request.body_truncated", ValueType::Bool),
        ("my.filter", ValueType::StringMap),
        ("my.count", ValueType::Int64),
        ("check.decision_id", ValueType::String),
        ("check.rules", ValueType::String),
        ("source.port", ValueType::Int64),
        ("ratelimit.domain", ValueType::String),
        ("ratelimit.descriptor", ValueType::StringMap),
    ] {
        vocabulary.declare(name, value_type).unwrap();
    }
    Arc::new(vocabulary)
}

fn all(bag: &Bag) -> Attributes {
    let values = bag.vocabulary().iter().map(|declared| (declared.name.to_string(), bag.at(declared.slot)));
    values.filter_map(|(name, value)| Some((name, value?.clone()))).collect()
}

fn assert_has(attributes: &Attributes, expected: &[(&str, AttributeValue)], absent: &[&str]) {
    for (name, value) in expected {
        assert_eq!(attributes.get(*name), Some(value), "{name}");
    }
    for name in absent {
        assert_eq!(attributes.get(*name), None, "{name}");
    }
}

fn socket(address: &str, port: u32) -> Option<Address> {
    let socket = SocketAddress {
        address: address.to_owned(),
        port_specifier: Some(socket_address::PortSpecifier::PortValue(port)),
    };
    Some(Address { address: Some(address::Address::SocketAddress(socket)) })
}

fn ip(text: &str) -> AttributeValue {
    text.parse::<IpAddr>().unwrap().into()
}

fn texts(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
