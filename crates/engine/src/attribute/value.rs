use std::{
    borrow::Cow,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use prost_types::Timestamp;

use mixer_adapter_core::value::{self, Value};

/// A value of an attribute: the eight kinds of `istio.mixer.v1.AttributeValue`. Cheap to clone.
///
/// IP_ADDRESS is represented as bytes, and EMAIL_ADDRESS, URI and DNS_NAME as strings. A request may have a value that
/// is not of the declared type.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// STRING, EMAIL_ADDRESS, URI, DNS_NAME
    String(Arc<str>),
    /// INT64
    Int64(i64),
    /// DOUBLE
    Double(f64),
    /// BOOL
    Bool(bool),
    /// TIMESTAMP, in UTC
    Timestamp(Timestamp),
    /// DURATION, in nanoseconds
    Duration(i64),
    /// IP_ADDRESS; a valid one has 4 or 16 bytes
    Bytes(Bytes),
    /// STRING_MAP
    StringMap(StringMap),
}

impl AttributeValue {
    /// The name of the kind: a type, such as `STRING` or `INT64`, or `BYTES`.
    pub fn kind(&self) -> &'static str {
        match self {
            AttributeValue::String(_) => "STRING",
            AttributeValue::Int64(_) => "INT64",
            AttributeValue::Double(_) => "DOUBLE",
            AttributeValue::Bool(_) => "BOOL",
            AttributeValue::Timestamp(_) => "TIMESTAMP",
            AttributeValue::Duration(_) => "DURATION",
            AttributeValue::Bytes(_) => "BYTES",
            AttributeValue::StringMap(_) => "STRING_MAP",
        }
    }

    /// The size of a string, of bytes or of a map in bytes; 0 for other kinds.
    pub fn size(&self) -> usize {
        match self {
            AttributeValue::String(text) => text.len(),
            AttributeValue::Bytes(bytes) => bytes.len(),
            AttributeValue::StringMap(map) => {
                map.iter().map(|(key, value)| StringMap::entry_size(key.len(), value.len())).sum()
            }
            _ => 0,
        }
    }

    /// Converts a value; `None` for one without kind and for a duration out of range (292 years).
    pub fn from_value(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Unspecified => return None,
            Value::String(text) => text.as_str().into(),
            Value::EmailAddress(email) => email.value.as_str().into(),
            Value::DnsName(name) => name.value.as_str().into(),
            Value::Uri(uri) => uri.value.as_str().into(),
            Value::Int64(number) => AttributeValue::Int64(*number),
            Value::Double(number) => AttributeValue::Double(*number),
            Value::Bool(value) => AttributeValue::Bool(*value),
            Value::IpAddress(ip) => AttributeValue::Bytes(ip.value.clone()),
            Value::TimeStamp(time) => AttributeValue::Timestamp(time.value.unwrap_or_default()),
            Value::Duration(duration) => AttributeValue::Duration(i64::try_from(duration.nanos()).ok()?),
            Value::StringMap(map) => AttributeValue::StringMap(map.into()),
        })
    }
}

impl fmt::Display for AttributeValue {
    /// Formats the value like [`Value`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttributeValue::String(text) => f.write_str(text),
            AttributeValue::Int64(number) => number.fmt(f),
            AttributeValue::Double(number) => number.fmt(f),
            AttributeValue::Bool(value) => value.fmt(f),
            AttributeValue::Timestamp(time) => time.fmt(f),
            AttributeValue::Duration(nanos) => f.write_str(&value::format_duration((*nanos).into())),
            AttributeValue::Bytes(bytes) => value::IpAddress { value: bytes.clone() }.fmt(f),
            AttributeValue::StringMap(map) => Value::StringMap(map.into()).fmt(f),
        }
    }
}

macro_rules! attribute_from {
    ($($source:ty => $kind:ident),* $(,)?) => {
        $(impl From<$source> for AttributeValue {
            fn from(value: $source) -> Self {
                AttributeValue::$kind(value.into())
            }
        })*
    };
}

attribute_from! {
    &str => String,
    Cow<'_, str> => String,
    String => String,
    Arc<str> => String,
    i64 => Int64,
    f64 => Double,
    bool => Bool,
    Timestamp => Timestamp,
    SystemTime => Timestamp,
    Bytes => Bytes,
    StringMap => StringMap,
}

impl From<IpAddr> for AttributeValue {
    fn from(addr: IpAddr) -> Self {
        AttributeValue::Bytes(value::IpAddress::from(addr).value)
    }
}

impl From<Ipv4Addr> for AttributeValue {
    fn from(addr: Ipv4Addr) -> Self {
        IpAddr::V4(addr).into()
    }
}

impl From<Ipv6Addr> for AttributeValue {
    fn from(addr: Ipv6Addr) -> Self {
        IpAddr::V6(addr).into()
    }
}

/// Saturates at 292 years, the longest duration of an attribute.
impl From<Duration> for AttributeValue {
    fn from(duration: Duration) -> Self {
        AttributeValue::Duration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl<K: Into<Arc<str>>, V: Into<Arc<str>>, const N: usize> From<[(K, V); N]> for AttributeValue {
    fn from(entries: [(K, V); N]) -> Self {
        AttributeValue::StringMap(entries.into_iter().collect())
    }
}

/// The value of a STRING_MAP attribute, sorted by key. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringMap(Arc<[(Arc<str>, Arc<str>)]>);

impl StringMap {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Arc<str>> {
        let index = self.0.binary_search_by(|(candidate, _)| (**candidate).cmp(key)).ok()?;
        Some(&self.0[index].1)
    }

    /// Iterates over the entries by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The size in bytes of an entry with a key and a value of these lengths.
    pub fn entry_size(key: usize, value: usize) -> usize {
        size_of::<(Arc<str>, Arc<str>)>().saturating_add(key).saturating_add(value)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(K, V)> for StringMap {
    /// The last of several entries with the same key wins.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries: Vec<(Arc<str>, Arc<str>)> =
            entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        entries.reverse();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        entries.dedup_by(|(a, _), (b, _)| a == b);
        Self(entries.into())
    }
}

impl From<&value::StringMap> for StringMap {
    fn from(map: &value::StringMap) -> Self {
        map.value.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }
}

impl From<&StringMap> for value::StringMap {
    fn from(map: &StringMap) -> Self {
        map.iter().map(|(key, value)| (&**key, &**value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entry_of_a_key_wins() {
        let map: StringMap = [("b", "1"), ("a", "2"), ("b", "3"), ("a", "4")].into_iter().collect();
        assert_eq!(map.len(), 2);
        assert_eq!(map.get("b").map(|value| &**value), Some("3"));
        assert_eq!(map.get("a").map(|value| &**value), Some("4"));
        assert_eq!(map.get("c"), None);
    }

    #[test]
    fn a_duration_out_of_range_is_not_converted() {
        let out_of_range =
            value::Duration { value: Some(prost_types::Duration { seconds: i64::MAX, nanos: 0 }) };
        assert_eq!(AttributeValue::from_value(&Value::Duration(out_of_range)), None);
        assert_eq!(AttributeValue::from_value(&Value::Unspecified), None);
    }
}
