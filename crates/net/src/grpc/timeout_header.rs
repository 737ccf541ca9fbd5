use std::time::Duration;

use http::HeaderValue;
use tonic::Status;

/// Reads the header `grpc-timeout`: up to eight digits and a unit.
pub(super) fn grpc_timeout(header: Option<&HeaderValue>) -> Result<Option<Duration>, Status> {
    let Some(header) = header else { return Ok(None) };
    let timeout = header.to_str().ok().and_then(parse);
    timeout.map(Some).ok_or_else(|| {
        Status::invalid_argument(format!(
            "grpc-timeout {header:?} is not valid; write up to eight digits and one of H M S m u n"
        ))
    })
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// Returns the value of `grpc-timeout`: up to eight digits and a unit, rounded down, because a server must not assume more time than
/// is left.
pub fn timeout_header(timeout: Duration) -> HeaderValue {
    const DIGITS: u128 = 100_000_000;
    let (amount, unit) = match (timeout.as_micros(), timeout.as_millis(), timeout.as_secs()) {
        (micros, ..) if micros < DIGITS => (micros, 'u'),
        (_, millis, _) if millis < DIGITS => (millis, 'm'),
        (.., seconds) => (u128::from(seconds).min(DIGITS - 1), 'S'),
    };
    // Digits and a letter are always a header's value.
    HeaderValue::from_str(&format!("{amount}{unit}")).unwrap_or(HeaderValue::from_static("0u"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_up_to_eight_digits_and_a_unit() {
        assert_eq!(parse("199m"), Some(Duration::from_millis(199)));
        assert_eq!(parse("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for bad in ["", "m", "1", "1x", "123456789m", "-1S", "1.5S", "1µ"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn timeouts_are_rounded_down() {
        for (timeout, text) in [
            (Duration::from_millis(200), "200000u"),
            (Duration::from_nanos(1_999), "1u"),
            (Duration::from_micros(99_999_999), "99999999u"),
            (Duration::from_micros(100_000_999), "100000m"),
            (Duration::from_secs(100_000), "100000S"),
            (Duration::MAX, "99999999S"),
        ] {
            assert_eq!(timeout_header(timeout), text);
        }
    }
}
