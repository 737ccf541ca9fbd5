//! Values in the notation of Go's `%v`, as in the messages of the original.

use mixer_adapter_core::value::{Value, format_float, format_timestamp};

pub(super) fn print(value: &Value) -> String {
    match value {
        Value::Unspecified => "<nil>".to_owned(),
        Value::Double(number) => format_float(*number),
        Value::TimeStamp(time) => {
            let text = format_timestamp(time.value.unwrap_or_default(), 9).replace('T', " ");
            let text = text.trim_end_matches('Z').trim_end_matches('0').trim_end_matches('.');
            format!("{text} +0000 UTC")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    // Recorded.
    #[test]
    fn values_are_printed_as_by_go() {
        let time = |nanos| Value::from(UNIX_EPOCH + Duration::new(1_557_126_489, nanos));
        let cases = [
            (Value::Unspecified, "<nil>"),
            (1e20.into(), "1e+20"),
            (f64::INFINITY.into(), "+Inf"),
            (time(123_456_789), "2019-05-06 07:08:09.123456789 +0000 UTC"),
            (time(100_000_000), "2019-05-06 07:08:09.1 +0000 UTC"),
            (time(0), "2019-05-06 07:08:09 +0000 UTC"),
            (Duration::from_secs(90).into(), "1m30s"),
            (7.into(), "7"),
            (true.into(), "true"),
        ];
        for (value, text) in cases {
            assert_eq!(print(&value), text);
        }
    }
}
