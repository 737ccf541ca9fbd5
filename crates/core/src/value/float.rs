//! Floating-point numbers in Go's notation, which Mixer's adapters use.

/// Formats a number as Go's `%v` does: with the fewest digits that parse to the same number, and with an exponent below
/// 1e-04 and from 1e+06.
///
/// ```
/// use mixer_adapter_core::value::format_float;
/// assert_eq!(format_float(123456.5), "123456.5");
/// assert_eq!(format_float(4e6), "4e+06");
/// ```
pub fn format_float(number: f64) -> String {
    // Rust writes the same digits, but the exponent without padding: `1.5e-7`.
    let scientific = format!("{number:e}");
    let exponent = scientific.split_once('e').and_then(|(mantissa, exponent)| {
        let exponent: i32 = exponent.parse().ok()?;
        (!(-4..6).contains(&exponent)).then_some((mantissa, exponent))
    });
    match exponent {
        Some((mantissa, exponent)) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        None => format_decimal(number),
    }
}

/// Formats a number as Go's `FormatFloat` does without an exponent: with the fewest digits that parse to the same number,
/// or as `+Inf`, `-Inf` or `NaN`.
pub(crate) fn format_decimal(number: f64) -> String {
    if number == f64::INFINITY {
        return "+Inf".to_owned();
    }
    if number == f64::NEG_INFINITY {
        return "-Inf".to_owned();
    }
    number.to_string()
}

/// Parses a number as Go's `ParseFloat` does; returns `None` if Go refuses it.
///
/// A number is decimal or hexadecimal (`0x1p-2`), with underscores between digits, or `inf`, `infinity` or `nan` in any case.
/// Numbers too large for a DOUBLE are refused.
///
/// ```
/// use mixer_adapter_core::value::parse_float;
/// assert_eq!(parse_float("1_000"), Some(1000.0));
/// assert_eq!(parse_float("1e999"), None);
/// ```
pub fn parse_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number = match unsigned.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => f64::INFINITY,
        "nan" if unsigned.len() == text.len() => f64::NAN,
        _ if !underscores_separate_digits(unsigned) => return None,
        digits => parse_digits(&digits.replace('_', ""))?,
    };
    Some(if text.starts_with('-') { -number } else { number })
}

/// Parses a finite number without a sign, in lower case.
fn parse_digits(text: &str) -> Option<f64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => parse_hexadecimal(digits)?,
        // Rust accepts the same digits, but also a leading letter or sign.
        None if text.starts_with(|first: char| first.is_ascii_digit() || first == '.') => {
            text.parse().ok()?
        }
        None => return None,
    };
    number.is_finite().then_some(number)
}

fn parse_hexadecimal(digits: &str) -> Option<f64> {
    let (mantissa, exponent) = digits.split_once('p')?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let value = whole
        .chars()
        .chain(fraction.chars())
        .try_fold(0.0, |value, digit| Some(value * 16.0 + f64::from(digit.to_digit(16)?)))?;
    let scale = exponent.checked_sub(i32::try_from(fraction.len()).ok()?.checked_mul(4)?)?;
    // Scaled in two steps, so that a scale below the smallest power of two does not underflow to zero.
    Some(value * 2f64.powi(scale / 2) * 2f64.powi(scale - scale / 2))
}

/// Returns whether each underscore is between two digits, or between the prefix of a base and a digit.
fn underscores_separate_digits(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let is_hexadecimal = lower.starts_with("0x");
    let (mut after_digit, mut after_underscore) = (false, false);
    for (index, letter) in lower.char_indices() {
        let is_prefix = is_hexadecimal && index == 1;
        let is_digit = letter.is_ascii_digit() || is_prefix || is_hexadecimal && letter.is_ascii_hexdigit();
        if letter == '_' && !after_digit || letter != '_' && after_underscore && !is_digit {
            return false;
        }
        (after_digit, after_underscore) = (is_digit, letter == '_');
    }
    !after_underscore
}

#[cfg(test)]
mod tests {
    use super::*;

    // The first seven are recorded from Mixer's prometheus adapter; the others are from strconv/ftoa_test.go in Go.
    #[test]
    fn numbers_are_formatted_as_in_go() {
        let cases = [
            (4_000_000.0, "4e+06"),
            (1e20, "1e+20"),
            (1e-7, "1e-07"),
            (1e-5, "1e-05"),
            (-0.700_000_000_000_000_1, "-0.7000000000000001"),
            (1_001_015.0, "1.001015e+06"),
            (157_698_183.502_003, "1.57698183502003e+08"),
            (0.0001, "0.0001"),
            (100_000.0, "100000"),
            (1.0, "1"),
            (0.0, "0"),
            (-0.0, "-0"),
            (400.0, "400"),
            (1e23, "1e+23"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ];
        for (number, text) in cases {
            assert_eq!(format_float(number), text);
        }
    }

    // From strconv/atof_test.go in Go.
    #[test]
    fn numbers_are_parsed_as_in_go() {
        let cases = [
            ("", None),
            ("1", Some(1.0)),
            ("+1", Some(1.0)),
            ("1x", None),
            ("1.1.", None),
            ("1e23", Some(1e23)),
            ("1E23", Some(1e23)),
            ("0x1p0", Some(1.0)),
            ("0x1p-2", Some(0.25)),
            ("-0x1P-1", Some(-0.5)),
            ("0x.1p0", Some(0.0625)),
            ("0xp0", None),
            ("0x1", None),
            ("0x1e2", None),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            (".", None),
            (".e-1", None),
            ("1e", None),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("+INFINITY", Some(f64::INFINITY)),
            ("infinit", None),
            ("+nan", None),
            ("1e309", None),
            ("1e-350", Some(0.0)),
            ("1_23.50_0_0e+1_2", Some(1.235e14)),
            ("0x_1_2.3_4_5p+1_2", Some(74565.0)),
            ("-_123.5e+12", None),
            ("+_123.5e+12", None),
            ("_123.5e+12", None),
            ("1__23.5e+12", None),
            ("123_.5e+12", None),
            ("123._5e+12", None),
            ("123.5_e+12", None),
            ("123.5e_+12", None),
            ("123.5e+_12", None),
            ("123.5e_-12", None),
            ("123.5e+1__2", None),
            ("123.5e+12_", None),
            ("0x_1_2.3_4_5p+1_2_", None),
            ("+-1", None),
            (" 1", None),
        ];
        for (text, number) in cases {
            assert_eq!(parse_float(text), number, "{text:?}");
        }
        assert!(parse_float("NaN").is_some_and(f64::is_nan));
    }
}
