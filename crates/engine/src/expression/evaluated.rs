use std::borrow::Cow;

use bytes::Bytes;
use prost_types::Timestamp;

use crate::attribute::{AttributeValue, StringMap};
use mixer_adapter_core::value::{self, Value, ValueType};

/// The value of an expression, borrowed from the expression or the request where possible.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Evaluated<'a> {
    /// STRING
    String(Cow<'a, str>),
    /// EMAIL_ADDRESS
    EmailAddress(Cow<'a, str>),
    /// URI
    Uri(Cow<'a, str>),
    /// DNS_NAME
    DnsName(Cow<'a, str>),
    /// INT64
    Int64(i64),
    /// DOUBLE
    Double(f64),
    /// BOOL
    Bool(bool),
    /// TIMESTAMP
    Timestamp(Timestamp),
    /// DURATION, in nanoseconds
    Duration(i64),
    /// IP_ADDRESS; bytes from a request may be of any length
    IpAddress(Cow<'a, [u8]>),
    /// STRING_MAP
    StringMap(Cow<'a, StringMap>),
}

impl<'a> Evaluated<'a> {
    /// Creates a value of a type whose values are strings.
    pub(crate) fn string(value_type: ValueType, text: Cow<'a, str>) -> Self {
        match value_type {
            ValueType::EmailAddress => Evaluated::EmailAddress(text),
            ValueType::Uri => Evaluated::Uri(text),
            ValueType::DnsName => Evaluated::DnsName(text),
            _ => Evaluated::String(text),
        }
    }

    /// The type of the value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Evaluated::String(_) => ValueType::String,
            Evaluated::EmailAddress(_) => ValueType::EmailAddress,
            Evaluated::Uri(_) => ValueType::Uri,
            Evaluated::DnsName(_) => ValueType::DnsName,
            Evaluated::Int64(_) => ValueType::Int64,
            Evaluated::Double(_) => ValueType::Double,
            Evaluated::Bool(_) => ValueType::Bool,
            Evaluated::Timestamp(_) => ValueType::Timestamp,
            Evaluated::Duration(_) => ValueType::Duration,
            Evaluated::IpAddress(_) => ValueType::IpAddress,
            Evaluated::StringMap(_) => ValueType::StringMap,
        }
    }
}

impl From<Evaluated<'_>> for Value {
    fn from(evaluated: Evaluated<'_>) -> Self {
        match evaluated {
            Evaluated::String(text) => Value::String(text.into_owned()),
            Evaluated::EmailAddress(text) => Value::EmailAddress((&*text).into()),
            Evaluated::Uri(text) => Value::Uri((&*text).into()),
            Evaluated::DnsName(text) => Value::DnsName((&*text).into()),
            Evaluated::Int64(number) => Value::Int64(number),
            Evaluated::Double(number) => Value::Double(number),
            Evaluated::Bool(value) => Value::Bool(value),
            Evaluated::Timestamp(time) => Value::TimeStamp(value::TimeStamp { value: Some(time) }),
            Evaluated::Duration(nanos) => {
                const SECOND: i64 = 1_000_000_000;
                // The remainder is less than a second, which fits 32 bits.
                let duration =
                    prost_types::Duration { seconds: nanos / SECOND, nanos: (nanos % SECOND) as i32 };
                Value::Duration(value::Duration { value: Some(duration) })
            }
            Evaluated::IpAddress(bytes) => {
                Value::IpAddress(value::IpAddress { value: Bytes::from(bytes.into_owned()) })
            }
            Evaluated::StringMap(map) => Value::StringMap((&*map).into()),
        }
    }
}

impl From<Evaluated<'_>> for AttributeValue {
    fn from(evaluated: Evaluated<'_>) -> Self {
        match evaluated {
            Evaluated::String(text)
            | Evaluated::EmailAddress(text)
            | Evaluated::Uri(text)
            | Evaluated::DnsName(text) => AttributeValue::String(text.into()),
            Evaluated::Int64(number) => AttributeValue::Int64(number),
            Evaluated::Double(number) => AttributeValue::Double(number),
            Evaluated::Bool(value) => AttributeValue::Bool(value),
            Evaluated::Timestamp(time) => AttributeValue::Timestamp(time),
            Evaluated::Duration(nanos) => AttributeValue::Duration(nanos),
            Evaluated::IpAddress(bytes) => AttributeValue::Bytes(Bytes::from(bytes.into_owned())),
            Evaluated::StringMap(map) => AttributeValue::StringMap(map.into_owned()),
        }
    }
}
