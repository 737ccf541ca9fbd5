//! Timestamps in the notation of Mixer's adapters.

use prost_types::Timestamp;

/// Formats a timestamp in UTC with a fixed number of fractional digits, at most 9: `2017-08-21T10:04:00.000000Z` with 6.
/// Further digits are truncated.
pub fn format_timestamp(time: Timestamp, digits: u32) -> String {
    let mut time = time.normalized();
    time.nanos -= time.nanos % 10_i32.pow(9_u32.saturating_sub(digits));
    // prost omits trailing zeros of the fraction, three at a time.
    let text = time.to_string();
    let text = text.trim_end_matches('Z');
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}.{fraction:0<width$}Z", width = digits as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_the_requested_number_of_digits() {
        let cases = [
            ((-62_135_596_800, 0), 6, "0001-01-01T00:00:00.000000Z"),
            ((1_503_309_840, 0), 6, "2017-08-21T10:04:00.000000Z"),
            ((1_503_309_840, 120_000_000), 6, "2017-08-21T10:04:00.120000Z"),
            ((1_503_309_840, 123_456_789), 6, "2017-08-21T10:04:00.123456Z"),
            ((1_503_309_840, 123_456_789), 3, "2017-08-21T10:04:00.123Z"),
            ((-1, 999_999_999), 6, "1969-12-31T23:59:59.999999Z"),
            ((0, -1), 6, "1969-12-31T23:59:59.999999Z"),
        ];
        for ((seconds, nanos), digits, text) in cases {
            assert_eq!(format_timestamp(Timestamp { seconds, nanos }, digits), text);
        }
    }

    #[test]
    fn timestamps_beyond_the_calendar_are_formatted() {
        for seconds in [i64::MIN, i64::MAX] {
            for nanos in [i32::MIN, i32::MAX] {
                assert!(format_timestamp(Timestamp { seconds, nanos }, 6).ends_with('Z'));
            }
        }
    }
}
