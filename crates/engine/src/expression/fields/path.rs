use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::FieldError;

/// Returns the decoded value of a parameter in the query of `path`; `None` if the query does not have it.
///
/// # Errors
/// The parameter has several values that differ.
pub(crate) fn query(path: &str, key: &str) -> Result<Option<String>, FieldError> {
    let mut values = values(path, key);
    let Some(first) = values.next() else { return Ok(None) };
    if values.any(|other| other != first) {
        return Err(FieldError::SeveralValues);
    }
    Ok(Some(first.into_owned()))
}

/// Returns the decoded values of a parameter in the query of `path`, one per line; `None` if there are none.
pub(crate) fn query_all(path: &str, key: &str) -> Option<String> {
    let values: Vec<_> = values(path, key).collect();
    (!values.is_empty()).then(|| values.join("\n"))
}

fn values<'p>(path: &'p str, key: &str) -> impl Iterator<Item = Cow<'p, str>> {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let pairs = form_urlencoded::parse(query.as_bytes());
    pairs.filter(move |(name, _)| name == key).map(|(_, value)| value)
}

/// Returns the decoded segment of a path, with or without a query, counted from 1; `None` if the path has fewer. Empty segments,
/// as in `//`, do not count.
///
/// # Errors
/// A segment is `.` or `..`, also behind an encoded separator.
pub(crate) fn segment(path: &str, number: i64) -> Result<Option<String>, FieldError> {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    let mut found = None;
    for (place, segment) in (1..).zip(segments) {
        let decoded = percent_decode_str(segment).decode_utf8_lossy();
        if decoded.split(['/', '\\']).any(|part| part == "." || part == "..") {
            return Err(FieldError::DotSegment);
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
            ("/a?K=v", Ok(None)),
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
            assert_eq!(query_all(path, "k").as_deref(), values, "{path}");
        }
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
            prop_assert_eq!(query_all(&path, "k"), Some(values.join("\n")));
        }

        #[test]
        fn any_path_has_fields_or_an_error(path in "\\PC{0,40}", number in any::<i64>()) {
            let _ = (query(&path, "k"), query_all(&path, "k"), segment(&path, number));
        }
    }
}
