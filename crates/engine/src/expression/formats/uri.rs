//! URIs as Go's `net/url` parses them: validation and equality.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::{FormatError, dns};

struct Uri<'t> {
    scheme: &'t str,
    authority: Option<Authority<'t>>,
    /// Path, query and fragment.
    rest: &'t str,
}

struct Authority<'t> {
    user: Option<&'t str>,
    host: &'t str,
    /// The port with its colon, or an empty text.
    port: &'t str,
}

/// Validates a URI; any relative reference is one.
pub(crate) fn validate(text: &str) -> Result<(), FormatError> {
    if text.is_empty() {
        return Err(FormatError::new("the string is empty"));
    }
    parse(text).map(drop)
}

fn parse(text: &str) -> Result<Uri<'_>, FormatError> {
    if text.bytes().any(|b| b.is_ascii_control()) {
        return Err(FormatError::new("it contains a control character"));
    }
    let (scheme, after_scheme) = scheme(text)?;
    let (before_fragment, fragment) = after_scheme.split_once('#').unwrap_or((after_scheme, ""));
    let hierarchy = before_fragment.split_once('?').map_or(before_fragment, |(hierarchy, _)| hierarchy);
    check_escapes(fragment)?;
    if !hierarchy.starts_with('/') {
        if scheme.is_empty() {
            if hierarchy.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err(FormatError::new("the first segment of a path without scheme contains `:`"));
            }
            check_escapes(hierarchy)?;
        }
        return Ok(Uri { scheme, authority: None, rest: after_scheme });
    }
    let has_authority = hierarchy.starts_with("//") && !(scheme.is_empty() && hierarchy.starts_with("///"));
    if !has_authority {
        check_escapes(hierarchy)?;
        return Ok(Uri { scheme, authority: None, rest: after_scheme });
    }
    let end = hierarchy[2..].find('/').map_or(hierarchy.len(), |slash| slash + 2);
    check_escapes(&hierarchy[end..])?;
    Ok(Uri { scheme, authority: Some(authority(&hierarchy[2..end])?), rest: &after_scheme[end..] })
}

fn scheme(text: &str) -> Result<(&str, &str), FormatError> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap_or(text.len());
    match text[end..].strip_prefix(':') {
        Some(_) if end == 0 => Err(FormatError::new("the scheme before `:` is missing")),
        Some(rest) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => Ok((&text[..end], rest)),
        _ => Ok(("", text)),
    }
}

fn authority(text: &str) -> Result<Authority<'_>, FormatError> {
    let (user, host_port) = match text.rsplit_once('@') {
        Some((user, host_port)) => (Some(user), host_port),
        None => (None, text),
    };
    if let Some(user) = user {
        if !user.chars().all(|c| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c)) {
            return Err(FormatError::new(format!("`{user}` is not a valid user")));
        }
        check_escapes(user)?;
    }
    let port_start = if host_port.starts_with('[') {
        host_port.rfind(']').ok_or_else(|| FormatError::new(format!("`{host_port}` lacks a closing `]`")))?
            + 1
    } else {
        host_port.rfind(':').unwrap_or(host_port.len())
    };
    let (host, port) = host_port.split_at(port_start);
    if !port.is_empty()
        && !port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
    {
        return Err(FormatError::new(format!("`{port}` is not a valid port")));
    }
    let mut chars = host.chars();
    if !chars.all(|c| c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c) || !c.is_ascii()) {
        return Err(FormatError::new(format!("`{host}` is not a valid host")));
    }
    check_escapes(host)?;
    Ok(Authority { user, host: host.trim_start_matches('[').trim_end_matches(']'), port })
}

fn check_escapes(text: &str) -> Result<(), FormatError> {
    for (at, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(FormatError::new("`%` must be followed by two hexadecimal digits"));
        }
    }
    Ok(())
}

/// Returns whether two URIs are equal: the scheme in any letter case, and the host of http and https as a DNS name.
pub(crate) fn equal(a: &str, b: &str) -> Result<bool, FormatError> {
    if a == b {
        return Ok(true);
    }
    let (a, b) = (operand(a)?, operand(b)?);
    if !a.scheme.eq_ignore_ascii_case(b.scheme) || a.rest != b.rest {
        return Ok(false);
    }
    let is_http = a.scheme.eq_ignore_ascii_case("http") || a.scheme.eq_ignore_ascii_case("https");
    Ok(match (a.authority, b.authority) {
        (Some(a), Some(b)) => {
            let host =
                if is_http { dns::equal(&decoded(a.host), &decoded(b.host)) } else { a.host == b.host };
            host && a.user == b.user && a.port == b.port
        }
        (a, b) => a.is_none() && b.is_none(),
    })
}

/// Decodes letters beyond ASCII in a host.
fn decoded(host: &str) -> Cow<'_, str> {
    percent_decode_str(host).decode_utf8_lossy()
}

fn operand(text: &str) -> Result<Uri<'_>, FormatError> {
    parse(text).map_err(|error| error.of(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_s_url_parser_decides_what_a_uri_is() {
        for text in [
            "a",
            "http://a.com",
            "urn:foo",
            "http://[::1]:80/",
            "www.istio.io",
            "//a/b?c#d",
            "mailto:a b",
            "a/b:c",
        ] {
            assert_eq!(validate(text), Ok(()), "{text}");
        }
        for text in [
            "",
            ":/",
            "a b:c",
            "http://a b/",
            "http://a:x/",
            "http://[::1/",
            "/%zz",
            "http://a\n",
            "http://u^@a/",
        ] {
            assert!(validate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_the_scheme_and_the_host_of_http_are_compared_loosely() {
        assert_eq!(equal("HTTP://A.com/p", "http://a.com./p"), Ok(true));
        assert_eq!(equal("http://\u{ff41}\u{3002}com:80/p", "http://a.com:80/p"), Ok(true));
        assert_eq!(equal("http://%EF%BD%81.com/p", "http://a.com/p"), Ok(true));
        assert_eq!(equal("http://a.com/P", "http://a.com/p"), Ok(false));
        assert_eq!(equal("http://a.com:80/", "http://a.com/"), Ok(false));
        assert_eq!(equal("http://u@a.com/", "http://a.com/"), Ok(false));
        assert_eq!(equal("MAILTO:a@b", "mailto:a@b"), Ok(true));
        assert_eq!(equal("mailto:A@b", "mailto:a@b"), Ok(false));
        assert_eq!(equal("ftp://A/", "ftp://a/"), Ok(false));
    }
}
