//! Mail addresses without a display name, as in RFC 5322.

use std::borrow::Cow;

use super::dns;

/// The two sides of an address.
pub(crate) struct Address<'t> {
    /// Without quotes.
    local: Cow<'t, str>,
    domain: &'t str,
}

/// Reads an address; `<a@b.com>` is one too.
pub(crate) fn parse(text: &str) -> Result<Address<'_>, String> {
    let text = text.trim_matches([' ', '\t']);
    let bare = match (text.strip_prefix('<').and_then(|inner| inner.strip_suffix('>')), text.ends_with('>')) {
        (Some(inner), _) => inner.trim_matches([' ', '\t']),
        (None, true) => return Err("display names are not accepted".to_owned()),
        (None, false) => text,
    };
    let (local, rest) = match bare.strip_prefix('"') {
        Some(quoted) => unquote(quoted)?,
        None => {
            let end = bare.find(|c| !is_atom(c) && c != '.').unwrap_or(bare.len());
            (Cow::Borrowed(dot_atom(&bare[..end], "before")?), &bare[end..])
        }
    };
    let domain = rest.strip_prefix('@').ok_or("there is no `@` after the name")?;
    dot_atom(domain, "after")?;
    dns::to_unicode(domain)?;
    Ok(Address { local, domain })
}

fn dot_atom<'t>(text: &'t str, side: &str) -> Result<&'t str, String> {
    match text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom)) {
        true => Ok(text),
        false => Err(format!("`{text}` cannot stand {side} the `@`")),
    }
}

fn is_atom(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii()
}

/// The content of a quoted text whose first quote is gone, and what follows it.
fn unquote(text: &str) -> Result<(Cow<'_, str>, &str), String> {
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
    Err("the quoted name has no end".to_owned())
}

/// Whether two addresses are one: the name exactly, the domain as a DNS name.
pub(crate) fn same(a: &str, b: &str) -> Result<bool, String> {
    let (a, b) = (read(a)?, read(b)?);
    Ok(a.local == b.local && dns::same(a.domain, b.domain))
}

fn read(text: &str) -> Result<Address<'_>, String> {
    parse(text).map_err(|why| format!("`{text}`: {why}"))
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
        assert_eq!(same("\"istio\"@istio.io", "istio@ISTIO.io"), Ok(true));
        assert_eq!(same("A@b.com", "a@b.com"), Ok(false));
        assert!(same("a@b.com", "nonsense").is_err());
    }
}
