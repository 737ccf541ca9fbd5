//! Attribute values and their types, as in the instances that adapters receive.
//!
//! The eleven kinds are as in `istio.policy.v1beta1.Value` (docs/behaviour/values.md#value-types). Values are decoded directly
//! from the wire, without a conversion between generated messages and these types.

mod duration;
mod float;
mod kind;
mod message;
mod text;
mod timestamp;
mod typed;

pub use duration::{format_duration, parse_duration};
pub(crate) use float::format_decimal;
pub use float::{format_float, parse_float};
pub use kind::ValueType;
pub use timestamp::format_timestamp;
pub use typed::{DnsName, Duration, EmailAddress, IpAddress, StringMap, TimeStamp, Uri};

/// One attribute value: `istio.policy.v1beta1.Value`.
///
/// ```
/// use mixer_adapter_core::value::Value;
/// assert_eq!(Value::from("x").to_string(), "x");
/// assert_eq!(Value::from(42).as_int64(), Some(42));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// A `Value` message without a kind. Mixer never sends one; other clients can.
    #[default]
    Unspecified,
    /// STRING
    String(String),
    /// INT64
    Int64(i64),
    /// DOUBLE
    Double(f64),
    /// BOOL
    Bool(bool),
    /// IP_ADDRESS
    IpAddress(IpAddress),
    /// TIMESTAMP
    TimeStamp(TimeStamp),
    /// DURATION
    Duration(Duration),
    /// EMAIL_ADDRESS
    EmailAddress(EmailAddress),
    /// DNS_NAME
    DnsName(DnsName),
    /// URI
    Uri(Uri),
    /// STRING_MAP. Mixer puts one into the instances of compiled templates only, and never on the wire
    /// (docs/behaviour/values.md#string-maps).
    StringMap(StringMap),
}

impl Value {
    /// Returns the type; UNSPECIFIED if no kind is set.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::Unspecified => ValueType::Unspecified,
            Value::String(_) => ValueType::String,
            Value::Int64(_) => ValueType::Int64,
            Value::Double(_) => ValueType::Double,
            Value::Bool(_) => ValueType::Bool,
            Value::IpAddress(_) => ValueType::IpAddress,
            Value::TimeStamp(_) => ValueType::Timestamp,
            Value::Duration(_) => ValueType::Duration,
            Value::EmailAddress(_) => ValueType::EmailAddress,
            Value::DnsName(_) => ValueType::DnsName,
            Value::Uri(_) => ValueType::Uri,
            Value::StringMap(_) => ValueType::StringMap,
        }
    }

    /// Returns the text of a STRING, EMAIL_ADDRESS, DNS_NAME or URI.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            Value::EmailAddress(email) => Some(&email.value),
            Value::DnsName(name) => Some(&name.value),
            Value::Uri(uri) => Some(&uri.value),
            _ => None,
        }
    }

    /// Returns the number of an INT64.
    pub fn as_int64(&self) -> Option<i64> {
        match self {
            Value::Int64(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the number of a DOUBLE.
    pub fn as_double(&self) -> Option<f64> {
        match self {
            Value::Double(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the value of a BOOL.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// Returns the address of an IP_ADDRESS, v4-mapped addresses as IPv4; `None` if the bytes are not an address.
    pub fn as_ip(&self) -> Option<std::net::IpAddr> {
        match self {
            Value::IpAddress(ip) => ip.addr(),
            _ => None,
        }
    }
}

macro_rules! value_from {
    ($($source:ty => $kind:ident),* $(,)?) => {
        $(impl From<$source> for Value {
            fn from(value: $source) -> Self {
                Value::$kind(value.into())
            }
        })*
    };
}

value_from! {
    &str => String,
    String => String,
    i64 => Int64,
    f64 => Double,
    bool => Bool,
    std::net::IpAddr => IpAddress,
    std::time::Duration => Duration,
    std::time::SystemTime => TimeStamp,
    IpAddress => IpAddress,
    TimeStamp => TimeStamp,
    Duration => Duration,
    EmailAddress => EmailAddress,
    DnsName => DnsName,
    Uri => Uri,
    StringMap => StringMap,
}
