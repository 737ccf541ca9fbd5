//! DNS names: validation and equality, as with Go's `golang.org/x/net/idna`.

use std::borrow::Cow;

use idna::{
    AsciiDenyList, punycode,
    uts46::{Hyphens, Uts46},
};
use unicode_normalization::UnicodeNormalization as _;

use super::FormatError;

/// Validates a name, composes its letters (NFC) and decodes its punycode labels. Letter case is preserved.
pub(crate) fn to_unicode(name: &str) -> Result<Cow<'_, str>, FormatError> {
    if name.is_ascii() {
        return decode_labels(name);
    }
    let composed: String = name.nfc().collect();
    Ok(Cow::Owned(decode_labels(&composed)?.into_owned()))
}

fn decode_labels(name: &str) -> Result<Cow<'_, str>, FormatError> {
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

fn check(label: &str) -> Result<Cow<'_, str>, FormatError> {
    if label.is_empty() {
        return Err(FormatError::new("a label is empty"));
    }
    let label = match label.strip_prefix("xn--") {
        Some(encoded) => Cow::Owned(decode(encoded).ok_or_else(|| not_punycode(label))?),
        None => Cow::Borrowed(label),
    };
    if label.starts_with('-') || label.ends_with('-') {
        return Err(FormatError::new(format!("label `{label}` starts or ends with `-`")));
    }
    if label.len() > 4 && label.as_bytes()[2..4] == *b"--" {
        let reason = format!("label `{label}` has `--` at its third character, which is reserved");
        return Err(FormatError::new(reason));
    }
    Ok(label)
}

fn not_punycode(label: &str) -> FormatError {
    FormatError::new(format!("label `{label}` is not valid punycode"))
}

/// Returns whether two names are equal as UTS 46 maps them without transitional processing, which covers letter case, width and
/// punycode, and apart from one trailing dot. Names that are not valid are equal regardless of letter case only.
pub(crate) fn equal(a: &str, b: &str) -> bool {
    if without_root(a).eq_ignore_ascii_case(without_root(b)) {
        return true;
    }
    if [a, b].iter().all(|name| name.is_ascii() && !has_punycode(name)) {
        return false;
    }
    match (mapped(a), mapped(b)) {
        (Some(a), Some(b)) => without_root(&a) == without_root(&b),
        _ => without_root(a).to_lowercase() == without_root(b).to_lowercase(),
    }
}

fn has_punycode(name: &str) -> bool {
    name.as_bytes().windows(4).any(|window| window.eq_ignore_ascii_case(b"xn--"))
}

fn without_root(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

fn mapped(name: &str) -> Option<Cow<'_, str>> {
    let (mapped, valid) = Uts46::new().to_unicode(name.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow);
    valid.is_ok().then_some(mapped)
}

/// Maximum length of punycode in bytes, the same as of a DNS name: decoding takes quadratic time.
const MAX_PUNYCODE: usize = 253;

fn decode(encoded: &str) -> Option<String> {
    (encoded.len() <= MAX_PUNYCODE).then(|| punycode::decode_to_string(encoded)).flatten()
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
        assert_eq!(to_unicode(&long), Err(not_punycode(&long)));
    }

    #[test]
    fn names_are_equal_whatever_their_case_encoding_or_trailing_dot() {
        assert!(equal("foo.com", "FOO.com."));
        assert!(equal("XN--bcher-KVA.example", "Bücher.example"));
        assert!(!equal("foo.com", "foo.com.."));
        assert!(!equal("xn--bcher-kva.example", "bucher.example"));
    }

    #[test]
    fn letters_are_composed() {
        assert_eq!(to_unicode("bu\u{308}cher.example").as_deref(), Ok("b\u{fc}cher.example"));
    }

    /// Mappings of UTS 46, revision 33.
    #[test]
    fn names_are_equal_that_idna_maps_to_one() {
        for name in [
            "evil\u{3002}com",
            "\u{ff45}\u{ff56}il.com",
            "e\u{ad}vil.com",
            "\u{1d41e}vil.com",
            "evil\u{ff61}com\u{ff0e}",
        ] {
            assert!(equal(name, "evil.com"), "{name}");
            assert!(equal("EVIL.com.", name), "{name}");
        }
        assert!(equal("bu\u{308}cher.example", "xn--bcher-kva.example"));
        // Without transitional processing these are letters of their own.
        assert!(!equal("fa\u{df}.example", "fass.example"));
        assert!(!equal("e\u{200d}vil.com", "evil.com"));
    }

    #[test]
    fn names_that_idna_refuses_are_equal_to_themselves() {
        for name in ["a_b.c\u{308}om", "xn--99999999999.com", "\u{e000}.com", "xn--a.\u{5d0}a"] {
            assert!(equal(name, &(name.to_uppercase() + ".")), "{name}");
            assert!(!equal(name, "evil.com"), "{name}");
        }
        assert!(!equal("\u{e000}.com", "\u{e001}.com"));
    }
}
