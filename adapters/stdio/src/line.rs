//! The format of lines. JSON is written by hand, because the order of fields and the escapes follow the original.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use base64::{display::Base64Display, engine::general_purpose::STANDARD};
use mixer_adapter_core::{
    prost_types::Timestamp,
    value::{Value, format_timestamp},
};

use super::params::Level;

/// The format of a line (docs/behaviour/adapters.md#lines-of-stdio).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// `{"level":"info","time":"..","instance":"..","name":value}`
    Json,
    /// `time<tab>info<tab>instance<tab>{"name": value}`
    Console,
}

/// One log entry or metric; displayed with a line feed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) encoding: Encoding,
    pub(super) level: Level,
    pub(super) time: Timestamp,
    /// The instance's name; omitted if empty.
    pub(super) instance: &'a str,
    /// The value of a metric.
    pub(super) value: Option<&'a Value>,
    /// Variables or dimensions.
    pub(super) fields: &'a BTreeMap<String, Value>,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, time) = (level_name(self.level), format_timestamp(self.time, 6));
        match self.encoding {
            Encoding::Json => {
                write!(f, r#"{{"level":"{level}","time":"{time}""#)?;
                if !self.instance.is_empty() {
                    f.write_str(r#","instance":"#)?;
                    write_string(self.instance, f)?;
                }
                for (name, value) in self.fields() {
                    f.write_char(',')?;
                    write_string(name, f)?;
                    f.write_char(':')?;
                    write_value(value, f)?;
                }
                f.write_str("}\n")
            }
            Encoding::Console => {
                write!(f, "{time}\t{level}")?;
                if !self.instance.is_empty() {
                    f.write_char('\t')?;
                    // Not quoted, so nothing in it may end the line or the column.
                    f.write_str(&self.instance.replace(char::is_control, " "))?;
                }
                let mut before = "\t{";
                for (name, value) in self.fields() {
                    f.write_str(before)?;
                    before = ", ";
                    write_string(name, f)?;
                    f.write_str(": ")?;
                    write_value(value, f)?;
                }
                f.write_str(if before == ", " { "}\n" } else { "\n" })
            }
        }
    }
}

impl<'a> Line<'a> {
    fn fields(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let value = self.value.map(|value| ("value", value));
        value.into_iter().chain(self.fields.iter().map(|(name, value)| (name.as_str(), value)))
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Info => "info",
        Level::Warning => "warn",
        Level::Error => "error",
    }
}

fn write_value(value: &Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        Value::Unspecified => f.write_str("null"),
        Value::String(text) => write_string(text, f),
        Value::Int64(number) => write!(f, "{number}"),
        // JSON has no numbers for these.
        Value::Double(number) if number.is_nan() => f.write_str(r#""NaN""#),
        Value::Double(f64::INFINITY) => f.write_str(r#""+Inf""#),
        Value::Double(f64::NEG_INFINITY) => f.write_str(r#""-Inf""#),
        Value::Double(number) => write!(f, "{number}"),
        Value::Bool(truth) => write!(f, "{truth}"),
        Value::IpAddress(ip) => match ip.addr() {
            Some(addr) => write!(f, r#""{addr}""#),
            None => write!(f, r#""{}""#, Base64Display::new(&ip.value, &STANDARD)),
        },
        Value::TimeStamp(time) => write!(f, r#""{time}""#),
        Value::Duration(length) => write!(f, r#""{length}""#),
        Value::EmailAddress(email) => write_string(&email.value, f),
        Value::DnsName(name) => write_string(&name.value, f),
        Value::Uri(uri) => write_string(&uri.value, f),
        Value::StringMap(map) => write_string(&map.to_string(), f),
    }
}

/// Writes a JSON string with the escapes of the original.
fn write_string(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    let mut rest = text;
    while let Some(at) = rest.find(|letter| letter < ' ' || letter == '"' || letter == '\\') {
        let (plain, special) = rest.split_at(at);
        f.write_str(plain)?;
        let mut letters = special.chars();
        match letters.next() {
            Some('\n') => f.write_str("\\n")?,
            Some('\r') => f.write_str("\\r")?,
            Some('\t') => f.write_str("\\t")?,
            Some(quoted @ ('"' | '\\')) => write!(f, "\\{quoted}")?,
            Some(control) => write!(f, "\\u{:04x}", u32::from(control))?,
            None => {}
        }
        rest = letters.as_str();
    }
    f.write_str(rest)?;
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mixer_adapter_core::value::{DnsName, EmailAddress, IpAddress, StringMap, TimeStamp};

    use super::*;

    const ZERO: Timestamp = Timestamp { seconds: -62_135_596_800, nanos: 0 };

    fn fields<const N: usize>(entries: [(&str, Value); N]) -> BTreeMap<String, Value> {
        entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The variables of stdio_test.go. No `Value` holds plain bytes: an address that is none stands for them. Its map is Go's, written
    /// as an object; Mixer's own, of which instances are made, is written as text (recorded).
    fn variables(address: &[u8]) -> BTreeMap<String, Value> {
        let ip = |bytes: &[u8]| Value::from(IpAddress { value: bytes.to_vec().into() });
        let time = TimeStamp { value: Some(Timestamp { seconds: 1_503_309_840, nanos: 0 }) };
        fields([
            ("String", "a string".into()),
            ("Int64", 123.into()),
            ("Double", 1.23.into()),
            ("Bool", true.into()),
            ("Time", time.into()),
            ("Duration", Duration::from_secs(1).into()),
            ("StringMap", [("A", "B"), ("C", "D")].into_iter().collect::<StringMap>().into()),
            ("Bytes", ip(b"b")),
            ("IPAddress", ip(address)),
            ("DNSName", DnsName::from("foo.bar.com").into()),
            ("URL", "http://foo.com".into()),
            ("EmailAddr", EmailAddress::from("foo@bar.com").into()),
        ])
    }

    fn line(
        encoding: Encoding,
        level: Level,
        value: Option<&Value>,
        fields: &BTreeMap<String, Value>,
    ) -> String {
        Line { encoding, level, time: ZERO, instance: "Foo", value, fields }.to_string()
    }

    /// stdio_test.go, TestLogEntry, the first case.
    #[test]
    fn log_entries_as_json_read_as_the_originals() {
        let address = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 0, 0, 127];
        let expected = concat!(
            r#"{"level":"warn","time":"0001-01-01T00:00:00.000000Z","instance":"Foo","Bool":true,"Bytes":"Yg==","#,
            r#""DNSName":"foo.bar.com","Double":1.23,"Duration":"1s","EmailAddr":"foo@bar.com","#,
            r#""IPAddress":"1.0.0.127","Int64":123,"String":"a string","StringMap":"stringmap[A:B C:D]","#,
            r#""Time":"2017-08-21T10:04:00.000000Z","URL":"http://foo.com"}"#,
            "\n"
        );
        assert_eq!(line(Encoding::Json, Level::Warning, None, &variables(&address)), expected);
    }

    /// stdio_test.go, TestLogEntry, the second case.
    #[test]
    fn log_entries_for_the_console_read_as_the_originals() {
        let expected = concat!(
            "0001-01-01T00:00:00.000000Z\twarn\tFoo\t",
            r#"{"Bool": true, "Bytes": "Yg==", "DNSName": "foo.bar.com", "Double": 1.23, "Duration": "1s", "#,
            r#""EmailAddr": "foo@bar.com", "IPAddress": "0.0.0.0", "Int64": 123, "String": "a string", "#,
            r#""StringMap": "stringmap[A:B C:D]", "Time": "2017-08-21T10:04:00.000000Z", "URL": "http://foo.com"}"#,
            "\n"
        );
        assert_eq!(line(Encoding::Console, Level::Warning, None, &variables(&[0, 0, 0, 0])), expected);
    }

    /// stdio_test.go, TestMetricEntry, all three cases.
    #[test]
    fn metrics_read_as_the_originals() {
        let (value, dimensions) = (123.into(), variables(&[0, 0, 0, 0]));
        let json = concat!(
            r#"{"level":"info","time":"0001-01-01T00:00:00.000000Z","instance":"Foo","value":123,"Bool":true,"#,
            r#""Bytes":"Yg==","DNSName":"foo.bar.com","Double":1.23,"Duration":"1s","EmailAddr":"foo@bar.com","#,
            r#""IPAddress":"0.0.0.0","Int64":123,"String":"a string","StringMap":"stringmap[A:B C:D]","#,
            r#""Time":"2017-08-21T10:04:00.000000Z","URL":"http://foo.com"}"#,
            "\n"
        );
        assert_eq!(line(Encoding::Json, Level::Info, Some(&value), &dimensions), json);
        for (level, name) in [(Level::Info, "info"), (Level::Warning, "warn")] {
            let console = [
                "0001-01-01T00:00:00.000000Z\t",
                name,
                "\tFoo\t",
                r#"{"value": 123, "Bool": true, "Bytes": "Yg==", "DNSName": "foo.bar.com", "Double": 1.23, "#,
                r#""Duration": "1s", "EmailAddr": "foo@bar.com", "IPAddress": "0.0.0.0", "Int64": 123, "#,
                r#""String": "a string", "StringMap": "stringmap[A:B C:D]", "Time": "2017-08-21T10:04:00.000000Z", "#,
                r#""URL": "http://foo.com"}"#,
                "\n",
            ];
            assert_eq!(line(Encoding::Console, level, Some(&value), &dimensions), console.concat());
        }
    }

    /// stdio_test.go, TestLogEntry, the cases of one variable.
    #[test]
    fn levels_have_the_originals_names() {
        for (level, name) in [(Level::Info, "info"), (Level::Warning, "warn"), (Level::Error, "error")] {
            let expected = format!(
                "{{\"level\":\"{name}\",\"time\":\"0001-01-01T00:00:00.000000Z\",\"instance\":\"Foo\",\"Double\":1.23}}\n"
            );
            assert_eq!(line(Encoding::Json, level, None, &fields([("Double", 1.23.into())])), expected);
        }
    }

    // The original writes 1754 for the year 1, and 1816 for the year 9999.
    #[test]
    fn times_are_written_as_they_are_however_far_away() {
        for (seconds, text) in [
            (-62_135_596_800, "0001-01-01T00:00:00.000000Z"),
            (253_402_300_799, "9999-12-31T23:59:59.000000Z"),
        ] {
            let time = TimeStamp { value: Some(Timestamp { seconds, nanos: 0 }) };
            let line = line(Encoding::Json, Level::Info, None, &fields([("v", time.into())]));
            assert!(line.ends_with(&format!("\"v\":\"{text}\"}}\n")), "{line}");
        }
    }

    // The original writes the bytes in base64 in metrics, though not in log entries.
    #[test]
    fn addresses_in_metrics_are_addresses() {
        let fields = fields([("d", IpAddress { value: vec![10, 0, 0, 1].into() }.into())]);
        let line = line(Encoding::Json, Level::Info, Some(&1.into()), &fields);
        assert!(line.ends_with("\"value\":1,\"d\":\"10.0.0.1\"}\n"), "{line}");
    }

    #[test]
    fn a_value_without_a_kind_is_null() {
        let fields = fields([("a", Value::Unspecified)]);
        let text = line(Encoding::Json, Level::Info, Some(&Value::Unspecified), &fields);
        assert!(text.ends_with("\"value\":null,\"a\":null}\n"), "{text}");
    }

    #[test]
    fn numbers_that_json_lacks_are_strings_and_large_ones_are_written_out() {
        let cases = [
            (f64::NAN, r#""NaN""#),
            (f64::INFINITY, r#""+Inf""#),
            (f64::NEG_INFINITY, r#""-Inf""#),
            (1e21, "1000000000000000000000"),
            (3.0, "3"),
        ];
        for (number, text) in cases {
            let line = line(Encoding::Json, Level::Info, Some(&number.into()), &BTreeMap::new());
            assert!(line.ends_with(&format!("\"value\":{text}}}\n")), "{line}");
        }
    }

    #[test]
    fn nothing_in_an_entry_ends_its_line() {
        let fields = fields([("a\nb", "\"\\\n\r\t\u{8}\u{1f}\u{7f}é".into())]);
        for encoding in [Encoding::Json, Encoding::Console] {
            let instance = "x\ny\t";
            let line =
                Line { encoding, level: Level::Info, time: ZERO, instance, value: None, fields: &fields };
            let text = line.to_string();
            assert_eq!(text.matches('\n').count(), 1, "{text}");
            assert!(text.contains(r#""a\nb""#), "{text}");
            assert!(text.contains("\"\\\"\\\\\\n\\r\\t\\u0008\\u001f\u{7f}é\""), "{text}");
        }
    }

    #[test]
    fn an_entry_without_name_and_variables_has_no_place_for_them() {
        let line = |encoding| {
            let fields = BTreeMap::new();
            Line { encoding, level: Level::Info, time: ZERO, instance: "", value: None, fields: &fields }
                .to_string()
        };
        assert_eq!(line(Encoding::Console), "0001-01-01T00:00:00.000000Z\tinfo\n");
        assert_eq!(line(Encoding::Json), "{\"level\":\"info\",\"time\":\"0001-01-01T00:00:00.000000Z\"}\n");
    }
}
