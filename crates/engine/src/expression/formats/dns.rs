//! DNS names: validation and equality.
//!
//! Mixer uses an IDNA library with most rules disabled. Implemented here are the rules that were observed to matter, not
//! the tables of code points (normalization, bidirectional text).

use std::borrow::Cow;

/// A label that no DNS name may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DnsNameError {
    #[error("a label is empty")]
    EmptyLabel,
    #[error("label `{0}` is not valid punycode")]
    Punycode(String),
    #[error("label `{0}` starts or ends with `-`")]
    OuterHyphen(String),
    #[error("label `{0}` has `--` at its third character, which is reserved")]
    ReservedHyphens(String),
}

/// Validates a name and decodes its punycode labels. Letter case is preserved.
pub(crate) fn to_unicode(name: &str) -> Result<Cow<'_, str>, DnsNameError> {
    // A trailing dot is the root, not an empty label.
    let (labels, root) = match name.strip_suffix('.') {
        Some(labels) => (labels, "."),
        None => (name, ""),
    };
    let mut decoded = Vec::new();
    for label in labels.split('.') {
        decoded.push(check(label)?);
    }
    if decoded.iter().all(|label| matches!(label, Cow::Borrowed(_))) {
        return Ok(Cow::Borrowed(name));
    }
    Ok(Cow::Owned(decoded.join(".") + root))
}

fn check(label: &str) -> Result<Cow<'_, str>, DnsNameError> {
    if label.is_empty() {
        return Err(DnsNameError::EmptyLabel);
    }
    let label = match label.strip_prefix("xn--") {
        Some(encoded) => Cow::Owned(decode(encoded).ok_or_else(|| DnsNameError::Punycode(label.to_owned()))?),
        None => Cow::Borrowed(label),
    };
    if label.starts_with('-') || label.ends_with('-') {
        return Err(DnsNameError::OuterHyphen(label.into_owned()));
    }
    if label.len() > 4 && label.as_bytes()[2..4] == *b"--" {
        return Err(DnsNameError::ReservedHyphens(label.into_owned()));
    }
    Ok(label)
}

/// Returns whether two names are equal, regardless of letter case, one trailing dot and punycode.
pub(crate) fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.strip_suffix('.').unwrap_or(a), b.strip_suffix('.').unwrap_or(b));
    if a.eq_ignore_ascii_case(b) {
        return true;
    }
    if [a, b].iter().all(|name| name.is_ascii() && !has_punycode(name)) {
        return false;
    }
    a.split('.').map(canonical).eq(b.split('.').map(canonical))
}

fn has_punycode(name: &str) -> bool {
    name.as_bytes().windows(4).any(|window| window.eq_ignore_ascii_case(b"xn--"))
}

fn canonical(label: &str) -> String {
    let label = label.to_lowercase();
    label.strip_prefix("xn--").and_then(decode).unwrap_or(label)
}

/// Maximum length of punycode in bytes, the same as of a DNS name: decoding takes quadratic time.
const MAX_PUNYCODE: usize = 253;

/// Decodes punycode (RFC 3492) without its prefix.
fn decode(encoded: &str) -> Option<String> {
    if encoded.len() > MAX_PUNYCODE {
        return None;
    }
    let (basic, digits) = encoded.rsplit_once('-').unwrap_or(("", encoded));
    if !basic.is_ascii() {
        return None;
    }
    let mut output: Vec<char> = basic.chars().collect();
    let (mut code, mut position, mut bias) = (128u32, 0u32, 72u32);
    let mut digits = digits.bytes();
    while digits.len() > 0 {
        let start = position;
        let (mut weight, mut base) = (1u32, 36u32);
        loop {
            let digit = match digits.next()? {
                letter @ (b'a'..=b'z' | b'A'..=b'Z') => letter.to_ascii_lowercase() - b'a',
                number @ b'0'..=b'9' => number - b'0' + 26,
                _ => return None,
            };
            position = position.checked_add(u32::from(digit).checked_mul(weight)?)?;
            let threshold = base.saturating_sub(bias).clamp(1, 26);
            if u32::from(digit) < threshold {
                break;
            }
            weight = weight.checked_mul(36 - threshold)?;
            base += 36;
        }
        let length = output.len() as u32 + 1;
        bias = adapt(position - start, length, start == 0);
        code = code.checked_add(position / length)?;
        position %= length;
        output.insert(position as usize, char::from_u32(code)?);
        position += 1;
    }
    Some(output.into_iter().collect())
}

fn adapt(delta: u32, length: u32, first: bool) -> u32 {
    let mut delta = if first { delta / 700 } else { delta / 2 };
    delta += delta / length;
    let mut bias = 0;
    while delta > 35 * 26 / 2 {
        delta /= 35;
        bias += 36;
    }
    bias + 36 * delta / (delta + 38)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_checked_and_decoded() {
        assert_eq!(to_unicode("xn--bcher-kva.example.").as_deref(), Ok("bücher.example."));
        assert_eq!(to_unicode("xn--wgbl6a.xn--mgberp4a5d4ar").as_deref(), Ok("قطر.السعودية"));
        for name in ["FOO.com.", "a_b.com", "*.foo.com", "a b", "bücher.example"] {
            assert_eq!(to_unicode(name).as_deref(), Ok(name));
        }
        for name in ["", ".", "foo..com", "-a.com", "a-.com", "ab--cd.com", "xn--a!.com", "xn--99999999999"] {
            assert!(to_unicode(name).is_err(), "{name}");
        }
        let long = "xn--".to_owned() + &"a".repeat(MAX_PUNYCODE + 1);
        assert_eq!(to_unicode(&long), Err(DnsNameError::Punycode(long.clone())));
    }

    #[test]
    fn names_are_equal_whatever_their_case_encoding_or_trailing_dot() {
        assert!(equal("foo.com", "FOO.com."));
        assert!(equal("XN--bcher-KVA.example", "Bücher.example"));
        assert!(!equal("foo.com", "foo.com.."));
        assert!(!equal("xn--bcher-kva.example", "bucher.example"));
    }
}
