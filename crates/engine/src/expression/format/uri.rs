//! URIs as Go's `net/url` reads them.

use super::dns;

struct Uri<'t> {
    scheme: &'t str,
    authority: Option<Authority<'t>>,
    /// Everything after the authority.
    rest: &'t str,
}

struct Authority<'t> {
    user: Option<&'t str>,
    host: &'t str,
    /// With its colon; empty if there is none.
    port: &'t str,
}

/// Says why a text is no URI; any relative reference is one.
pub(crate) fn check(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    parse(text).map(drop)
}

fn parse(text: &str) -> Result<Uri<'_>, String> {
    if text.bytes().any(|b| b.is_ascii_control()) {
        return Err("it has a control character".to_owned());
    }
    let (scheme, after_scheme) = scheme(text)?;
    let (before_fragment, fragment) = after_scheme.split_once('#').unwrap_or((after_scheme, ""));
    let hierarchy = before_fragment.split_once('?').map_or(before_fragment, |(hierarchy, _)| hierarchy);
    check_escapes(fragment)?;
    if !hierarchy.starts_with('/') {
        if scheme.is_empty() {
            if hierarchy.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("a path without scheme has `:` in its first segment".to_owned());
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

fn scheme(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap_or(text.len());
    match text[end..].strip_prefix(':') {
        Some(_) if end == 0 => Err("there is no scheme before the `:`".to_owned()),
        Some(rest) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => Ok((&text[..end], rest)),
        _ => Ok(("", text)),
    }
}

fn authority(text: &str) -> Result<Authority<'_>, String> {
    let (user, place) = match text.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, text),
    };
    if let Some(user) = user {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(fits) {
            return Err(format!("`{user}` is no user name"));
        }
        check_escapes(user)?;
    }
    let (host, port) = match place.starts_with('[') {
        true => place.split_at(place.rfind(']').ok_or_else(|| format!("`{place}` has no `]`"))? + 1),
        false => place.split_at(place.rfind(':').unwrap_or(place.len())),
    };
    if !port.is_empty()
        && !port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
    {
        return Err(format!("`{port}` is no port"));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c) || !c.is_ascii();
    if !host.chars().all(fits) {
        return Err(format!("`{host}` is no host"));
    }
    check_escapes(host)?;
    Ok(Authority { user, host: host.trim_start_matches('[').trim_end_matches(']'), port })
}

fn check_escapes(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err("a `%` is not followed by two hexadecimal digits".to_owned());
        }
    }
    Ok(())
}

/// Whether two URIs are one: the scheme in any letter case, and the host of http and https as a DNS name.
pub(crate) fn same(a: &str, b: &str) -> Result<bool, String> {
    if a == b {
        return Ok(true);
    }
    let (a, b) = (read(a)?, read(b)?);
    if !a.scheme.eq_ignore_ascii_case(b.scheme) || a.rest != b.rest {
        return Ok(false);
    }
    let is_http = a.scheme.eq_ignore_ascii_case("http") || a.scheme.eq_ignore_ascii_case("https");
    Ok(match (a.authority, b.authority) {
        (Some(a), Some(b)) => {
            let host = if is_http { dns::same(a.host, b.host) } else { a.host == b.host };
            host && a.user == b.user && a.port == b.port
        }
        (a, b) => a.is_none() && b.is_none(),
    })
}

fn read(text: &str) -> Result<Uri<'_>, String> {
    parse(text).map_err(|why| format!("`{text}`: {why}"))
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
            assert_eq!(check(text), Ok(()), "{text}");
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
            assert!(check(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_the_scheme_and_the_host_of_http_are_compared_loosely() {
        assert_eq!(same("HTTP://A.com/p", "http://a.com./p"), Ok(true));
        assert_eq!(same("http://a.com/P", "http://a.com/p"), Ok(false));
        assert_eq!(same("http://a.com:80/", "http://a.com/"), Ok(false));
        assert_eq!(same("http://u@a.com/", "http://a.com/"), Ok(false));
        assert_eq!(same("MAILTO:a@b", "mailto:a@b"), Ok(true));
        assert_eq!(same("mailto:A@b", "mailto:a@b"), Ok(false));
        assert_eq!(same("ftp://A/", "ftp://a/"), Ok(false));
    }
}
