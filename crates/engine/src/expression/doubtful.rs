//! Calls of `match` and `matches` that are valid but probably not intended (docs/behaviour/expressions.md#functions).

use super::{
    span::Span,
    syntax::{Ast, Call, Literal, Node},
};

/// A call that does something else than it looks like.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DoubtfulCall {
    pub(crate) span: Span,
    pub(crate) reason: String,
    pub(crate) help: String,
}

/// Returns the doubtful calls of an expression in Mixer's own language, whose source is `text`.
pub(super) fn calls(ast: &Ast, text: &str) -> Box<[DoubtfulCall]> {
    let doubtful = |(call, span)| exchanged(call, span, text).or_else(|| wildcards(call));
    let mut found: Vec<_> = ast.calls().filter_map(doubtful).collect();
    found.sort_by_key(|call| call.span.start);
    found.into()
}

/// Checks that the pattern of `matches` is its receiver.
fn exchanged(call: &Call, span: Span, text: &str) -> Option<DoubtfulCall> {
    let receiver = call.receiver.as_deref().filter(|_| call.name == "matches")?;
    let argument = call.arguments.first()?;
    if constant(receiver).is_some() || constant(argument).is_none() {
        return None;
    }
    let source = |ast: &Ast| text.get(ast.span.start as usize..ast.span.end as usize).unwrap_or_default();
    let (receiver, argument) = (source(receiver), source(argument));
    let reason = format!(
        "the receiver of `matches` is the regular expression, here `{receiver}`, and {argument} the text"
    );
    Some(DoubtfulCall { span, reason, help: format!("write `{argument}.matches({receiver})`") })
}

/// Checks that the pattern of `match` has no `*` but a wildcard.
fn wildcards(call: &Call) -> Option<DoubtfulCall> {
    let pattern = call.arguments.last().filter(|_| call.name == "match")?;
    let text = constant(pattern)?;
    let literal = text.strip_suffix('*').or_else(|| text.strip_prefix('*')).unwrap_or(text);
    let reason = "only one `*`, at the end of a pattern or else at its start, is a wildcard; any other stands for itself";
    literal.contains('*').then(|| DoubtfulCall {
        span: pattern.span,
        reason: reason.to_owned(),
        help: "use a regular expression, such as `\"^/a.*b\".matches(request.path)`".to_owned(),
    })
}

fn constant(ast: &Ast) -> Option<&str> {
    match &ast.node {
        Node::Literal(Literal::Str(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::expression::syntax::parse;

    /// The sources of the doubtful parts.
    fn doubtful(text: &str) -> Vec<&str> {
        let calls = calls(&parse(text).unwrap(), text);
        calls.iter().map(|call| &text[call.span.start as usize..call.span.end as usize]).collect()
    }

    #[test]
    fn a_pattern_that_is_the_argument_of_matches_is_doubtful() {
        assert_eq!(doubtful(r#"b && a.matches("^/a")"#), [r#"a.matches("^/a")"#]);
        assert_eq!(doubtful(r#"(a | "").matches("^/a")"#), [r#"(a | "").matches("^/a")"#]);
        for right in [r#""^/a".matches(a)"#, "a.matches(b)", r#""a".matches("a")"#, r#"a.startsWith("/a")"#] {
            assert!(doubtful(right).is_empty(), "{right}");
        }
    }

    #[test]
    fn an_asterisk_that_is_no_wildcard_is_doubtful() {
        for pattern in [r#""/a*b*""#, r#""*/x*""#, r#""/a*b""#, r#""**""#] {
            assert_eq!(doubtful(&format!("match(a, {pattern}) || b")), [pattern]);
        }
        for pattern in [r#""/a*""#, r#""*a""#, r#""*""#, r#""a""#, r#""""#, "b"] {
            assert!(doubtful(&format!("match(a, {pattern})")).is_empty(), "{pattern}");
        }
        assert!(doubtful(r#"a == "*x*""#).is_empty());
    }
}
