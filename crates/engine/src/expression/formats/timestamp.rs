//! Timestamps in RFC 3339.

use prost_types::Timestamp;

/// Parses a timestamp; also returns the offset of its zone in seconds east of UTC, unless it is written `Z`.
pub(crate) fn parse(text: &str) -> Option<(Timestamp, Option<i32>)> {
    let (date, time) = (text.get(..10)?, text.get(10..)?);
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let time = time.strip_prefix('T')?;
    let [hour, minute, second] = numbers(time.get(..8)?, ':', [2, 2, 2])?;
    let (nanos, zone) = fraction(&time[8..])?;
    let offset = match zone {
        "Z" => None,
        _ => Some(offset(zone)?),
    };
    let days_of_month = days(year, month + 1) - days(year, month);
    let valid = (1..=12).contains(&month) && (1..=days_of_month).contains(&day);
    if !valid || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let clock = hour * 3600 + minute * 60 + second;
    let seconds = (days(year, month) + day - 1) * 86_400 + clock - i64::from(offset.unwrap_or(0));
    Some((Timestamp { seconds, nanos }, offset))
}

/// Parses three numbers of the given widths.
fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part =
            parts.next().filter(|part| part.len() == width && part.bytes().all(|b| b.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Returns the nanoseconds of `.5Z` and the remainder. Digits below a nanosecond are dropped.
fn fraction(text: &str) -> Option<(i32, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let digits = &rest[..end.min(9)];
    let nanos: i32 = digits.parse().ok()?;
    Some((nanos * 10i32.pow(9 - digits.len() as u32), &rest[end..]))
}

fn offset(zone: &str) -> Option<i32> {
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let [hours, minutes, _] = numbers(&format!("{}:00", &zone[1..]), ':', [2, 2, 2])?;
    (hours <= 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60) as i32)
}

/// Returns the days from the Unix epoch to the first day of a month; month 13 is the next January.
fn days(year: i64, month: i64) -> i64 {
    // Years that start in March, so that the leap day is their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + (153 * month + 2) / 5 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_fraction_and_zone() {
        for (text, seconds, nanos, offset) in [
            ("1970-01-01T00:00:00Z", 0, 0, None),
            ("2015-01-02T15:04:35Z", 1_420_211_075, 0, None),
            ("1969-12-31T23:59:59.5Z", -1, 500_000_000, None),
            ("2020-02-29T01:00:00.000000001+01:00", 1_582_934_400, 1, Some(3600)),
            ("2020-01-01T00:00:00-00:30", 1_577_838_600, 0, Some(-1800)),
            ("0001-01-01T00:00:00Z", -62_135_596_800, 0, None),
            ("9999-12-31T23:59:59Z", 253_402_300_799, 0, None),
        ] {
            assert_eq!(parse(text), Some((Timestamp { seconds, nanos }, offset)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "2020-01-01",
            "2020-01-01 00:00:00Z",
            "2020-01-01T00:00:00",
            "2019-02-29T00:00:00Z",
            "2020-13-01T00:00:00Z",
            "2020-00-01T00:00:00Z",
            "2020-01-32T00:00:00Z",
            "2020-01-01T24:00:00Z",
            "2020-01-01T00:00:60Z",
            "2020-01-01T00:00:00.Z",
            "2020-01-01T00:00:00+1:00",
            "2020-01-01T00:00:00z",
            "+020-01-01T00:00:00Z",
            "2020-01-01T00:00:00é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
