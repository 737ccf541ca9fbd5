//! Durations in Go's notation, which Mixer's configuration uses (docs/behaviour/values.md#durations).

/// Formats a duration in nanoseconds as Go does: `1h2m3.5s`, `1.5ms`, `0s`.
///
/// ```
/// assert_eq!(mixer_adapter_core::value::format_duration(90_000_000_000), "1m30s");
/// ```
pub fn format_duration(nanos: i128) -> String {
    const MINUTE: u128 = 60 * 1_000_000_000;
    let magnitude = nanos.unsigned_abs();
    let mut text = String::new();
    if nanos < 0 {
        text.push('-');
    }
    match magnitude {
        0 => text.push_str("0s"),
        1..1_000 => text.push_str(&format!("{magnitude}ns")),
        1_000..1_000_000 => push_fraction(&mut text, magnitude, 1_000, "µs"),
        1_000_000..1_000_000_000 => push_fraction(&mut text, magnitude, 1_000_000, "ms"),
        _ => {
            let (hours, minutes) = (magnitude / (60 * MINUTE), magnitude / MINUTE % 60);
            if hours > 0 {
                text.push_str(&format!("{hours}h"));
            }
            if hours > 0 || minutes > 0 {
                text.push_str(&format!("{minutes}m"));
            }
            push_fraction(&mut text, magnitude % MINUTE, 1_000_000_000, "s");
        }
    }
    text
}

fn push_fraction(text: &mut String, amount: u128, unit: u128, name: &str) {
    text.push_str(&(amount / unit).to_string());
    let rest = amount % unit;
    if rest > 0 {
        let digits = unit.ilog10() as usize;
        let fraction = format!("{rest:0digits$}");
        text.push('.');
        text.push_str(fraction.trim_end_matches('0'));
    }
    text.push_str(name);
}

/// Parses a duration as Go's `time.ParseDuration` does (`1m30s`, `-1.5h`, `0`), and returns nanoseconds. Returns `None` if
/// Go refuses it, which includes durations over 292 years.
///
/// ```
/// assert_eq!(mixer_adapter_core::value::parse_duration("1.5s"), Some(1_500_000_000));
/// ```
pub fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let whole = &rest[..digits];
        rest = &rest[digits..];
        let fraction = match rest.strip_prefix('.') {
            Some(after) => {
                let digits = after.bytes().take_while(u8::is_ascii_digit).count();
                rest = &after[digits..];
                &after[..digits]
            }
            None => "",
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let letters = rest.bytes().take_while(|byte| *byte != b'.' && !byte.is_ascii_digit()).count();
        let unit: u128 = match &rest[..letters] {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60 * 1_000_000_000,
            "h" => 3_600 * 1_000_000_000,
            _ => return None,
        };
        rest = &rest[letters..];
        // An empty whole part is zero; digits that overflow u128 exceed the largest duration.
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        // Digits below a nanosecond are truncated, as in Go; 18 digits are always enough.
        let fraction = &fraction[..fraction.len().min(18)];
        let parts: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
        let scale = 10_u128.pow(fraction.len() as u32);
        nanos = nanos.checked_add(whole.checked_mul(unit)?)?.checked_add(parts * unit / scale)?;
    }
    let nanos = i128::try_from(nanos).ok()?;
    i64::try_from(if negative { -nanos } else { nanos }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_as_in_go() {
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (2_000_000, "2ms"),
            (1_500_000_000, "1.5s"),
            (-1_500_000_000, "-1.5s"),
            (3_600_000_000_000, "1h0m0s"),
            (90_000_000_000, "1m30s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(format_duration(nanos), text);
        }
    }

    #[test]
    fn durations_are_parsed_as_in_go() {
        let cases = [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("1m30s", Some(90_000_000_000)),
            ("-1.5h", Some(-5_400_000_000_000)),
            (".5s", Some(500_000_000)),
            ("5µs", Some(5_000)),
            ("1.s", Some(1_000_000_000)),
            ("", None),
            ("+", None),
            ("1", None),
            ("1x", None),
            (".s", None),
            ("1s ", None),
            ("300000000h", None),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse_duration(text), nanos, "{text:?}");
        }
    }
}
