//! Email addresses without a display name, as in RFC 5322: validation and equality.

use std::borrow::Cow;

use super::dns::{self, DnsNameError};

/// A string that is not an email address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EmailError {
    #[error("display names are not accepted")]
    DisplayName,
    #[error("the quoted local part is not terminated")]
    UnterminatedQuote,
    #[error("expected `@` after the local part")]
    NoAt,
    #[error("`{0}` is not a valid local part")]
    LocalPart(String),
    #[error("`{0}` is not a valid domain")]
    Domain(String),
    #[error(transparent)]
    DnsName(#[from] DnsNameError),
    #[error("`{address}`: {source}")]
    Operand { address: String, source: Box<EmailError> },
}

/// The two parts of an address.
#[derive(Debug)]
struct Address<'t> {
    /// Without quotes.
    local: Cow<'t, str>,
    domain: &'t str,
}

/// Validates an address; `<a@b.com>` is one, too.
pub(crate) fn validate(text: &str) -> Result<(), EmailError> {
    parse(text).map(drop)
}

fn parse(text: &str) -> Result<Address<'_>, EmailError> {
    let text = text.trim_matches([' ', '\t']);
    let bare = match (text.strip_prefix('<').and_then(|inner| inner.strip_suffix('>')), text.ends_with('>')) {
        (Some(inner), _) => inner.trim_matches([' ', '\t']),
        (None, true) => return Err(EmailError::DisplayName),
        (None, false) => text,
    };
    let (local, rest) = match bare.strip_prefix('"') {
        Some(quoted) => unquote(quoted)?,
        None => {
            let end = bare.find(|c| !is_atom(c) && c != '.').unwrap_or(bare.len());
            (Cow::Borrowed(dot_atom(&bare[..end], EmailError::LocalPart)?), &bare[end..])
        }
    };
    let domain = rest.strip_prefix('@').ok_or(EmailError::NoAt)?;
    dot_atom(domain, EmailError::Domain)?;
    dns::to_unicode(domain)?;
    Ok(Address { local, domain })
}

fn dot_atom(text: &str, invalid: fn(String) -> EmailError) -> Result<&str, EmailError> {
    let is_valid = text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom));
    if is_valid { Ok(text) } else { Err(invalid(text.to_owned())) }
}

fn is_atom(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii()
}

/// Returns the content of a quoted string, whose opening quote is already consumed, and the remainder.
fn unquote(text: &str) -> Result<(Cow<'_, str>, &str), EmailError> {
    let mut content = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((Cow::Owned(content), &text[at + 1..])),
            '\\' => content.extend(chars.next().map(|(_, escaped)| escaped)),
            _ if c.is_ascii_control() && c != '\t' => break,
            _ => content.push(c),
        }
    }
    Err(EmailError::UnterminatedQuote)
}

/// Returns whether two addresses are equal: the local parts exactly, the domains as DNS names.
pub(crate) fn equal(a: &str, b: &str) -> Result<bool, EmailError> {
    let (a, b) = (operand(a)?, operand(b)?);
    Ok(a.local == b.local && dns::equal(a.domain, b.domain))
}

fn operand(text: &str) -> Result<Address<'_>, EmailError> {
    parse(text).map_err(|error| EmailError::Operand { address: text.to_owned(), source: Box::new(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_accepted_without_display_name_only() {
        for text in ["a@b.com", "<a@b.com>", "\"q q\"@b.com", "a@localhost", " a.b+c@bücher.example "] {
            assert!(parse(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "a",
            "a@",
            "@b",
            "a@b@c",
            "a@b.COM.",
            "Bob <a@b.com>",
            "a b@c",
            "a..b@c",
            "\"a@b",
            "a@-b.com",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn quotes_and_the_case_of_the_domain_make_no_difference() {
        assert_eq!(equal("\"istio\"@istio.io", "istio@ISTIO.io"), Ok(true));
        assert_eq!(equal("A@b.com", "a@b.com"), Ok(false));
        assert!(equal("a@b.com", "nonsense").is_err());
    }
}
