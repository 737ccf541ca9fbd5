//! Values as text, as Mixer's adapters write them into labels and messages (docs/behaviour/values.md#text-of-values).

use std::fmt;

use super::{
    Duration, IpAddress, StringMap, TimeStamp, Value, format_decimal, format_duration, format_timestamp,
};

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unspecified => Ok(()),
            Value::String(text) => f.write_str(text),
            Value::Int64(number) => write!(f, "{number}"),
            Value::Double(number) if number.is_infinite() => f.write_str(&format_decimal(*number)),
            Value::Double(number) => write!(f, "{number}"),
            Value::Bool(truth) => write!(f, "{truth}"),
            Value::IpAddress(ip) => ip.fmt(f),
            Value::TimeStamp(time) => time.fmt(f),
            Value::Duration(length) => length.fmt(f),
            Value::EmailAddress(email) => f.write_str(&email.value),
            Value::DnsName(name) => f.write_str(&name.value),
            Value::Uri(uri) => f.write_str(&uri.value),
            Value::StringMap(map) => map.fmt(f),
        }
    }
}

/// Kinds that JSON does not have become texts.
impl From<Value> for serde_json::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Unspecified => Self::Null,
            Value::Int64(number) => number.into(),
            Value::Double(number) => number.into(),
            Value::Bool(truth) => truth.into(),
            Value::StringMap(map) => map.value.into_iter().collect(),
            text => text.to_string().into(),
        }
    }
}

impl fmt::Display for IpAddress {
    /// Writes the address as Go does: bytes that are not an address in hexadecimal after a question mark, no bytes as `<nil>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addr() {
            Some(addr) => addr.fmt(f),
            None if self.value.is_empty() => f.write_str("<nil>"),
            None => {
                f.write_str("?")?;
                self.value.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl fmt::Display for TimeStamp {
    /// Writes RFC 3339 in UTC with six fractional digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_timestamp(self.value.unwrap_or_default(), 6))
    }
}

impl fmt::Display for StringMap {
    /// Writes the entries sorted by key, `stringmap[k1:v1 k2:v2]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stringmap[")?;
        for (index, (key, value)) in self.value.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{key}:{value}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_duration(self.nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_every_length_are_written_as_text() {
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];
        for bytes in [&[10, 1, 2, 3][..], &mapped[..], b"10.1.2.3"] {
            let ip = IpAddress { value: prost::bytes::Bytes::copy_from_slice(bytes) };
            assert_eq!(ip.to_string(), "10.1.2.3");
        }
        let nonsense = IpAddress { value: prost::bytes::Bytes::from_static(&[1, 0xab]) };
        assert_eq!(nonsense.to_string(), "?01ab");
        assert_eq!(IpAddress::default().to_string(), "<nil>");
    }

    #[test]
    fn infinite_numbers_have_a_sign_and_timestamps_six_digits() {
        assert_eq!(Value::from(f64::INFINITY).to_string(), "+Inf");
        assert_eq!(Value::from(1e-7).to_string(), "0.0000001");
        let instant = prost_types::Timestamp { seconds: 1_557_126_489, nanos: 123_456_789 };
        let instant = Value::TimeStamp(TimeStamp { value: Some(instant) });
        assert_eq!(instant.to_string(), "2019-05-06T07:08:09.123456Z");
    }

    #[test]
    fn maps_are_sorted_by_key() {
        let map: super::super::StringMap = [("b", "2"), ("a", "1")].into_iter().collect();
        assert_eq!(Value::StringMap(map).to_string(), "stringmap[a:1 b:2]");
    }
}
