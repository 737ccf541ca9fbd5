//! Email addresses, as in RFC 5322: validation and equality.

use std::borrow::Cow;

use super::{FormatError, dns};

/// The two parts of an address.
#[derive(Debug)]
struct Address<'t> {
    /// Without quotes.
    local: Cow<'t, str>,
    domain: &'t str,
}

/// Validates an address without a display name; `<a@b.com>` is one, too.
pub(crate) fn validate(text: &str) -> Result<(), FormatError> {
    let mailbox = parse(text)?;
    if mailbox.is_named {
        return Err(FormatError::new("display names are not accepted"));
    }
    dns::to_unicode(mailbox.address.domain)?;
    Ok(())
}

/// An address with or without a display name, as Go's `net/mail` parses it.
struct Mailbox<'t> {
    address: Address<'t>,
    is_named: bool,
}

fn parse(text: &str) -> Result<Mailbox<'_>, FormatError> {
    let text = text.trim_start_matches(SPACE);
    match addr_spec(text) {
        // The first comment is a name.
        Ok((address, rest)) => {
            let rest = rest.trim_start_matches(SPACE);
            comments(rest)?;
            Ok(Mailbox { address, is_named: rest.starts_with('(') })
        }
        Err(error) => {
            let name = text.len() - phrase(text).ok_or(error.clone())?.len();
            let inner = text[name..].strip_prefix('<').ok_or(error)?;
            let (address, rest) = addr_spec(inner)?;
            let rest = rest.strip_prefix('>');
            comments(rest.ok_or_else(|| FormatError::new("`<` is not followed by `>`"))?)?;
            Ok(Mailbox { address, is_named: name > 0 })
        }
    }
}

const SPACE: [char; 2] = [' ', '\t'];

/// Parses the address at the start of a text and returns the rest.
fn addr_spec(text: &str) -> Result<(Address<'_>, &str), FormatError> {
    let text = text.trim_start_matches(SPACE);
    let (local, rest) = match text.strip_prefix('"') {
        Some(quoted) => unquote(quoted)?,
        None => {
            let (local, rest) = dot_atom(text, "local part")?;
            (Cow::Borrowed(local), rest)
        }
    };
    let domain = rest.strip_prefix('@');
    let domain = domain.ok_or_else(|| FormatError::new("expected `@` after the local part"))?;
    let (domain, rest) = dot_atom(domain.trim_start_matches(SPACE), "domain")?;
    Ok((Address { local, domain }, rest))
}

/// Skips a display name; returns the text from its end, which is at `<`.
fn phrase(mut text: &str) -> Option<&str> {
    loop {
        text = text.trim_start_matches(SPACE);
        match text.chars().next()? {
            '<' => return Some(text),
            '"' => text = unquote(&text[1..]).ok()?.1,
            '>' | ':' => return None,
            letter if letter.is_ascii_control() => return None,
            letter => text = &text[letter.len_utf8()..],
        }
    }
}

/// Skips comments, which can be nested, up to the end of a text.
fn comments(text: &str) -> Result<(), FormatError> {
    let (mut depth, mut letters) = (0_usize, text.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            '\\' if depth > 0 => drop(letters.next()),
            ' ' | '\t' => {}
            letter if depth > 0 && !letter.is_ascii_control() => {}
            _ => return Err(not_a_comment(text)),
        }
    }
    if depth == 0 { Ok(()) } else { Err(not_a_comment(text)) }
}

fn not_a_comment(text: &str) -> FormatError {
    FormatError::new(format!("`{text}` after the address is not a comment"))
}

/// Returns the atoms at the start of a text, with dots between them, and the rest. `part` names the atoms in an error.
fn dot_atom<'t>(text: &'t str, part: &str) -> Result<(&'t str, &'t str), FormatError> {
    let (atoms, rest) = text.split_at(text.find(|c| !is_atom(c) && c != '.').unwrap_or(text.len()));
    let is_valid = atoms.split('.').all(|atom| !atom.is_empty());
    if is_valid {
        Ok((atoms, rest))
    } else {
        Err(FormatError::new(format!("`{atoms}` is not a valid {part}")))
    }
}

fn is_atom(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii()
}

/// Returns the content of a quoted string, whose opening quote is already consumed, and the remainder.
fn unquote(text: &str) -> Result<(Cow<'_, str>, &str), FormatError> {
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
    Err(FormatError::new("the quoted local part is not terminated"))
}

/// Returns whether two addresses are equal: the local parts exactly, the domains as DNS names.
pub(crate) fn equal(a: &str, b: &str) -> Result<bool, FormatError> {
    let (a, b) = (operand(a)?, operand(b)?);
    Ok(a.local == b.local && dns::equal(a.domain, b.domain))
}

fn operand(text: &str) -> Result<Address<'_>, FormatError> {
    parse(text).map(|mailbox| mailbox.address).map_err(|error| error.of(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_accepted_without_display_name_only() {
        for text in ["a@b.com", "<a@b.com>", "\"q q\"@b.com", "a@localhost", " a.b+c@bücher.example "] {
            assert_eq!(validate(text), Ok(()), "{text}");
        }
        for text in [
            "",
            "a",
            "a@",
            "@b",
            "a@b@c",
            "a@b.COM.",
            "Bob <a@b.com>",
            "a@b.com (Bob)",
            "<a@b.com",
            "a b@c",
            "a..b@c",
            "\"a@b",
            "a@-b.com",
        ] {
            assert!(validate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn quotes_and_the_case_of_the_domain_make_no_difference() {
        assert_eq!(equal("\"istio\"@istio.io", "istio@ISTIO.io"), Ok(true));
        assert_eq!(equal("A@b.com", "a@b.com"), Ok(false));
        assert!(equal("a@b.com", "nonsense").is_err());
    }

    /// Forms of RFC 5322, 3.4 and A.5.
    #[test]
    fn names_and_comments_make_no_difference() {
        for text in [
            "Bob <a@b.com>",
            "\"Bob, <x>\" J. Doe <a@B.COM> ",
            "a@b.com (Bob)",
            "a@b.com (Bob (of \\) b)) ()",
            "<a@b.com> (Bob)",
            "a@\u{ff42}\u{3002}com",
        ] {
            assert_eq!(equal(text, "a@b.com"), Ok(true), "{text}");
            assert_eq!(equal(text, "b@b.com"), Ok(false), "{text}");
        }
        for text in
            ["Bob a@b.com", "Bob <a@b.com", "a@b.com Bob", "a@b.com (Bob", "a@b.com )", "a: <a@b.com>"]
        {
            assert!(equal(text, "a@b.com").is_err(), "{text}");
        }
    }
}
