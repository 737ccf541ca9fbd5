//! How values read as text: the rules of the original's `Stringify` (docs/behaviour/values.md#text-of-values).

use std::{fmt, fmt::Write as _};

use super::{Duration, IpAddress, TimeStamp, Value, format_duration};

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unspecified => Ok(()),
            Value::String(text) => f.write_str(text),
            Value::Int64(number) => write!(f, "{number}"),
            Value::Double(number) => write!(f, "{number}"),
            Value::Bool(truth) => write!(f, "{truth}"),
            Value::IpAddress(ip) => ip.fmt(f),
            Value::TimeStamp(time) => time.fmt(f),
            Value::Duration(length) => length.fmt(f),
            Value::EmailAddress(email) => f.write_str(&email.value),
            Value::DnsName(name) => f.write_str(&name.value),
            Value::Uri(uri) => f.write_str(&uri.value),
            Value::StringMap(map) => {
                for (index, (key, value)) in map.value.iter().enumerate() {
                    if index > 0 {
                        f.write_char('&')?;
                    }
                    write!(f, "{key}={value}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for IpAddress {
    /// The address, or the bytes in hexadecimal where they are none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addr() {
            Some(addr) => addr.fmt(f),
            None => self.value.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

impl fmt::Display for TimeStamp {
    /// RFC 3339, in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.unwrap_or_default().fmt(f)
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
    fn addresses_read_as_text_whatever_their_length() {
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];
        for bytes in [&[10, 1, 2, 3][..], &mapped[..], b"10.1.2.3"] {
            let ip = IpAddress { value: prost::bytes::Bytes::copy_from_slice(bytes) };
            assert_eq!(ip.to_string(), "10.1.2.3");
        }
        let nonsense = IpAddress { value: prost::bytes::Bytes::from_static(&[1, 0xab]) };
        assert_eq!(nonsense.to_string(), "01ab");
    }

    #[test]
    fn maps_read_sorted_by_key() {
        let map: super::super::StringMap = [("b", "2"), ("a", "1")].into_iter().collect();
        assert_eq!(Value::StringMap(map).to_string(), "a=1&b=2");
    }
}
