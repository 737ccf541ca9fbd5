use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::{FieldError, is_key};

/// Returns the decoded value of a parameter in the query of `path`; `None` if the query does not have it.
///
/// # Errors
/// The parameter has several values that differ, or servers may find it elsewhere in the query.
pub(crate) fn query(path: &str, key: &str) -> Result<Option<String>, FieldError> {
    let mut values = values(path, key)?.into_iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.any(|other| other != first) {
        return Err(FieldError::SeveralValues);
    }
    Ok(Some(first.into_owned()))
}

/// Returns the decoded values of a parameter in the query of `path`, one per line; `None` if there are none.
///
/// # Errors
/// Servers may find the parameter elsewhere in the query.
pub(crate) fn query_all(path: &str, key: &str) -> Result<Option<String>, FieldError> {
    let values = values(path, key)?;
    Ok((!values.is_empty()).then(|| values.join("\n")))
}

/// Returns the values of a parameter. Some servers ignore the case of names, and some separate parameters by `;`, too.
fn values<'p>(path: &'p str, key: &str) -> Result<Vec<Cow<'p, str>>, FieldError> {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let found = pairs(query, key);
    if query.contains(';') && pairs(&query.replace(';', "&"), key) != found {
        return Err(FieldError::Semicolon);
    }
    if found.iter().any(|(name, _)| name != key) {
        return Err(FieldError::ParameterCase);
    }
    Ok(found.into_iter().map(|(_, value)| value).collect())
}

/// Returns the parameters with a name in any case.
fn pairs<'q>(query: &'q str, key: &str) -> Vec<(Cow<'q, str>, Cow<'q, str>)> {
    form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| is_key(name, key)).collect()
}

/// Returns the decoded segment of a path, with or without a query, counted from 1; `None` if the path has fewer. Empty segments,
/// as in `//`, do not count.
///
/// # Errors
/// A segment is `.` or `..`, also behind an encoded separator, or has parameters, which some servers remove first.
pub(crate) fn segment(path: &str, number: i64) -> Result<Option<String>, FieldError> {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    let mut found = None;
    for (place, segment) in (1..).zip(segments) {
        let decoded = percent_decode_str(segment).decode_utf8_lossy();
        let mut parts = decoded.split(['/', '\\']).map(|part| part.split(';').next().unwrap_or_default());
        if parts.any(|part| part == "." || part == "..") {
            return Err(FieldError::DotSegment);
        }
        if decoded.contains(';') {
            return Err(FieldError::PathParameter);
        }
        if place == number {
            found = Some(decoded.into_owned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some(text: &str) -> Result<Option<String>, FieldError> {
        Ok(Some(text.to_owned()))
    }

    #[test]
    fn a_parameter_is_decoded_and_has_one_value() {
        for (path, value) in [
            ("/a?k=v", some("v")),
            ("/a?x=1&k=%76", some("v")),
            ("/a?%6B=v", some("v")),
            ("/a?k=a+b%2Bc", some("a b+c")),
            ("/a?k=v&k=%76", some("v")),
            ("/a?k", some("")),
            ("/a?k=?", some("?")),
            ("/a?K=v", Err(FieldError::ParameterCase)),
            ("/a?k=v&%4B=v", Err(FieldError::ParameterCase)),
            ("/a?\u{212a}=v", Err(FieldError::ParameterCase)),
            ("/a?x=1;k=v", Err(FieldError::Semicolon)),
            ("/a?k=v;x=1", Err(FieldError::Semicolon)),
            ("/a?x=1;%4b", Err(FieldError::Semicolon)),
            ("/a?x=1;y=2&k=v%3Bw", some("v;w")),
            ("/a?x=k", Ok(None)),
            ("/k=v", Ok(None)),
            ("/a?k=v&k=w", Err(FieldError::SeveralValues)),
            ("/a?k=v&k", Err(FieldError::SeveralValues)),
        ] {
            assert_eq!(query(path, "k"), value, "{path}");
        }
    }

    #[test]
    fn all_values_of_a_parameter_are_lines() {
        for (path, values) in [("/a?k=v&x=1&k=%77&k", Some("v\nw\n")), ("/a?k=v", Some("v")), ("/a", None)] {
            assert_eq!(query_all(path, "k"), Ok(values.map(str::to_owned)), "{path}");
        }
        assert_eq!(query_all("/a?k=v&K=w", "k"), Err(FieldError::ParameterCase));
        assert_eq!(query_all("/a?x;k=w", "k"), Err(FieldError::Semicolon));
    }

    #[test]
    fn segments_are_decoded_and_counted_from_one() {
        for (path, number, value) in [
            ("/a/b/c", 1, some("a")),
            ("/a/b/c", 3, some("c")),
            ("/a/b/c", 4, Ok(None)),
            ("/a/b/c", 0, Ok(None)),
            ("//a/?b/c", 1, some("a")),
            ("//a/?b/c", 2, Ok(None)),
            ("/%61%2Fb", 1, some("a/b")),
            ("/a/../b", 1, Err(FieldError::DotSegment)),
            ("/a/%2e", 1, Err(FieldError::DotSegment)),
            ("/a/x%2f..%2fb", 1, Err(FieldError::DotSegment)),
            ("/a/..;/b", 1, Err(FieldError::DotSegment)),
            ("/a/..%3Bx/b", 1, Err(FieldError::DotSegment)),
            ("/a/%2e;x=..", 1, Err(FieldError::DotSegment)),
            ("/a;x/b", 2, Err(FieldError::PathParameter)),
            ("/a/b%3bx", 1, Err(FieldError::PathParameter)),
            ("/a/b?c;d", 2, some("b")),
            ("/a/...", 2, some("...")),
            ("", 1, Ok(None)),
        ] {
            assert_eq!(segment(path, number), value, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_repetition_changes_the_value_of_a_parameter(values in prop::collection::vec("[a-c]{0,2}", 1..4)) {
            let path = format!("/?{}", values.iter().map(|value| format!("k={value}")).collect::<Vec<_>>().join("&"));
            match query(&path, "k") {
                Ok(value) => prop_assert!(values.iter().all(|other| Some(other) == value.as_ref())),
                Err(error) => prop_assert_eq!(error, FieldError::SeveralValues),
            }
            prop_assert_eq!(query_all(&path, "k"), Ok(Some(values.join("\n"))));
        }

        #[test]
        fn any_path_has_fields_or_an_error(path in "\\PC{0,40}", number in any::<i64>()) {
            let _ = (query(&path, "k"), query_all(&path, "k"), segment(&path, number));
        }
    }
}
