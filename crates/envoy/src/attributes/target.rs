//! The target of a request: a path and a query.
//!
//! It is split at the first `?` and otherwise taken as it is. Nothing in it is decoded or resolved: a parser of URLs would take
//! the host of `//host/path` for an authority, and a rule about paths would then see another path than the upstream.

/// Splits a target into its path and its query.
pub(super) fn split(target: &str) -> (&str, Option<&str>) {
    match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    }
}

/// Iterates over the parameters of a query as they are written.
pub(super) fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_split_at_the_first_question_mark_and_never_parsed_as_a_url() {
        for (target, path, query) in [
            ("/a", "/a", None),
            ("/a?", "/a", Some("")),
            ("/a?b=c?d", "/a", Some("b=c?d")),
            ("//host/x", "//host/x", None),
            ("//host/x?y", "//host/x", Some("y")),
            ("///x", "///x", None),
            ("/a//b", "/a//b", None),
            ("/a/%2f/b", "/a/%2f/b", None),
            ("/a%2Fb", "/a%2Fb", None),
            ("/a%3Fb=c", "/a%3Fb=c", None),
            ("/%61dmin", "/%61dmin", None),
            ("/a;v=1/b", "/a;v=1/b", None),
            ("/a;v=1?b;c", "/a;v=1", Some("b;c")),
            ("/a/../b", "/a/../b", None),
            ("/a/%2e%2e/b", "/a/%2e%2e/b", None),
            ("/../../etc", "/../../etc", None),
            ("/a?../b", "/a", Some("../b")),
            (r"/a\b", r"/a\b", None),
            ("http://host/x", "http://host/x", None),
            ("/a#b", "/a#b", None),
            ("*", "*", None),
            ("", "", None),
            ("?a", "", Some("a")),
        ] {
            assert_eq!(split(target), (path, query), "{target}");
        }
    }

    #[test]
    fn parameters_are_as_they_are_written() {
        let parameters: Vec<_> = parameters("a=1&b&&c=%26&d=e=f&=g").collect();
        assert_eq!(parameters, [("a", "1"), ("b", ""), ("c", "%26"), ("d", "e=f"), ("", "g")]);
    }
}
