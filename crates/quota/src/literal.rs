//! Configured texts that dimensions are compared with.

use std::{collections::BTreeMap, net::IpAddr};

use mixer_adapter_core::{
    prost_types::Timestamp,
    value::{Value, parse_duration, parse_float},
};

/// A configured text, which equals a value if the text parsed as the value's type is that value
/// (docs/behaviour/values.md#comparing-with-configured-text). Parsed once as every type, because the type of the value is only
/// known with a request.
#[derive(Debug)]
pub(crate) struct Literal {
    text: String,
    int64: Option<i64>,
    double: Option<f64>,
    bool: Option<bool>,
    time: Option<Timestamp>,
    duration: Option<i64>,
    ip: Option<IpAddr>,
    map: BTreeMap<String, String>,
}

impl Literal {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            int64: text.parse().ok(),
            double: parse_float(text),
            bool: match text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
                _ => None,
            },
            time: text.parse().ok(),
            duration: parse_duration(text),
            // An IPv4-mapped address is IPv4, as in values.
            ip: text.parse().ok().map(|ip: IpAddr| ip.to_canonical()),
            map: text
                .split('&')
                .filter_map(|entry| entry.split_once('='))
                .filter(|(_, value)| !value.contains('='))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        }
    }

    /// Returns whether a value equals this; an absent value equals the empty text.
    pub(crate) fn equals(&self, value: Option<&Value>) -> bool {
        match value {
            None | Some(Value::Unspecified) => self.text.is_empty(),
            Some(Value::String(text)) => *text == self.text,
            Some(Value::Int64(number)) => self.int64 == Some(*number),
            Some(Value::Double(number)) => self.double == Some(*number),
            Some(Value::Bool(truth)) => self.bool == Some(*truth),
            Some(Value::IpAddress(ip)) => ip.addr().is_some_and(|addr| self.ip == Some(addr)),
            Some(Value::TimeStamp(time)) => self.time == Some(time.value.unwrap_or_default().normalized()),
            Some(Value::Duration(length)) => self.duration.map(i128::from) == Some(length.nanos()),
            Some(Value::EmailAddress(email)) => email.value == self.text,
            Some(Value::DnsName(name)) => name.value == self.text,
            Some(Value::Uri(uri)) => uri.value == self.text,
            Some(Value::StringMap(map)) => map.value == self.map,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use mixer_adapter_core::value::{IpAddress, StringMap, Uri};

    use super::*;

    fn equal(text: &str, value: impl Into<Value>) -> bool {
        Literal::new(text).equals(Some(&value.into()))
    }

    #[test]
    fn the_text_is_read_as_the_values_type() {
        let ip = |bytes: &'static [u8]| IpAddress { value: bytes.into() };
        let time = UNIX_EPOCH + Duration::from_secs(1_503_309_840);
        let map: StringMap = [("a", "b"), ("c", "d")].into_iter().collect();
        let cases: [(&str, Value, bool); 16] = [
            ("dest1", "dest1".into(), true),
            ("dest1", "Dest1".into(), false),
            ("42", 42.into(), true),
            ("42.0", 42.into(), false),
            ("4.20", 4.2.into(), true),
            ("T", true.into(), true),
            ("no", false.into(), false),
            ("90s", Duration::from_secs(90).into(), true),
            ("1m30s", Duration::from_secs(90).into(), true),
            ("2017-08-21T10:04:00Z", time.into(), true),
            ("2017-08-21T12:04:00+02:00", time.into(), true),
            ("192.10.1.118", ip(&[192, 10, 1, 118]).into(), true),
            ("192.10.1.118", ip(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 10, 1, 118]).into(), true),
            ("::ffff:192.10.1.118", ip(&[192, 10, 1, 118]).into(), true),
            ("c=d&a=b", map.clone().into(), true),
            ("a=b", map.into(), false),
        ];
        for (text, value, expected) in cases {
            assert_eq!(equal(text, value.clone()), expected, "{text:?} and {value:?}");
        }
        assert!(equal("http://x/", Uri::from("http://x/")));
    }

    #[test]
    fn an_absent_value_is_the_empty_text() {
        assert!(Literal::new("").equals(None));
        assert!(!Literal::new("x").equals(None));
    }

    // In the original it equals any of them.
    #[test]
    fn the_empty_text_equals_no_number_boolean_or_time() {
        let values: [Value; 5] =
            [0.into(), 0.0.into(), false.into(), UNIX_EPOCH.into(), Duration::from_secs(0).into()];
        for value in values {
            assert!(!equal("", value.clone()), "{value:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_address_equal_nothing() {
        assert!(!equal("", IpAddress { value: vec![1, 2, 3].into() }));
    }
}
