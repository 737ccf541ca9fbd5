//! Calls that are valid but probably not intended: patterns (docs/behaviour/expressions.md#functions), and comparisons that never hold
//! or that a client evades.

use super::{
    contradiction::{EQUAL, NOT_EQUAL, attribute, comparison},
    nullability::INDEX,
    span::Span,
    syntax::{Ast, Call, Chain, Literal, Node, parse},
};

/// A call that is probably not intended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DoubtfulCall {
    pub(crate) span: Span,
    pub(crate) reason: String,
    pub(crate) help: String,
}

impl DoubtfulCall {
    fn new(span: Span, reason: impl Into<String>, help: impl Into<String>) -> Self {
        Self { span, reason: reason.into(), help: help.into() }
    }
}

/// Returns the doubtful calls of an expression in Mixer's own language, whose source is `text`.
pub(super) fn calls(ast: &Ast, text: &str) -> Box<[DoubtfulCall]> {
    let found = ast.calls().filter_map(|(call, span)| {
        exchanged(call, span, text)
            .or_else(|| wildcards(call))
            .or_else(|| header_name(call))
            .or_else(|| letter_case(call, span))
            .or_else(|| path_with_query(call, span))
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|call| call.span.start);
    found.into()
}

/// Returns the comparisons of a condition in Mixer's own language that another spelling of a value evades.
pub(crate) fn avoidable(text: &str) -> Vec<DoubtfulCall> {
    let mut found = Vec::new();
    if let Ok(ast) = parse(text) {
        add_avoidable(&ast, true, &mut found);
    }
    found
}

/// Adds the comparisons that must be `expected` for the condition to match.
fn add_avoidable(ast: &Ast, expected: bool, found: &mut Vec<DoubtfulCall>) {
    match &ast.node {
        Node::Chain(Chain::And | Chain::Or, terms) => {
            terms.iter().for_each(|term| add_avoidable(term, expected, found));
        }
        Node::Call(call) => match comparison(call) {
            Some((operand, function @ (EQUAL | NOT_EQUAL), Literal::Bool(value))) => {
                add_avoidable(operand, (expected == *value) == (function == EQUAL), found);
            }
            Some((operand, function, Literal::Str(_)))
                if function == if expected { EQUAL } else { NOT_EQUAL } =>
            {
                let read = ClientText::of(operand).filter(|read| *read != ClientText::Path);
                let Some(read) = read else { return };
                let help = match read {
                    ClientText::QueryParameter | ClientText::QueryValues => {
                        "compare `query(request.path, \"..\")`, which fails for different values, or compare with `!=` the values that \
                         are allowed, and deny all others"
                    }
                    ClientText::Path | ClientText::Header => {
                        "compare with `!=` the values that are allowed, and deny all others"
                    }
                };
                found.push(DoubtfulCall::new(ast.span, read.reason(), help));
            }
            _ => {}
        },
        _ => {}
    }
}

/// A text that a client can write in several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientText {
    /// The path with the query.
    Path,
    /// The first value of a parameter of the query.
    QueryParameter,
    /// All values of a parameter.
    QueryValues,
    /// A header.
    Header,
}

impl ClientText {
    /// Returns the text that an expression in Mixer's own language reads first.
    pub(crate) fn read_by(text: &str) -> Option<Self> {
        Self::of(&parse(text).ok()?)
    }

    fn of(operand: &Ast) -> Option<Self> {
        match &operand.node {
            Node::Attribute(name) => (name == "request.path").then_some(Self::Path),
            Node::Chain(Chain::FirstOf, operands) => Self::of(operands.first()?),
            Node::Call(call) if call.name == "queryAll" => Some(Self::QueryValues),
            Node::Call(call) => match (entry(call)?, constant(call.arguments.get(1)?)?) {
                ("request.query_params", _) => Some(Self::QueryParameter),
                ("request.headers", name) if !name.starts_with(':') => Some(Self::Header),
                _ => None,
            },
            Node::Literal(_) | Node::Chain(..) => None,
        }
    }

    /// Why equality is avoided.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Path => "request.path includes the query: `/admin?x` is another value than `/admin`",
            Self::QueryParameter => {
                "a request with `%61` for `a`, or with the parameter twice, has another value"
            }
            Self::QueryValues => "a request with the parameter twice has another value: both, one per line",
            Self::Header => "a request with the header twice has another value: both, separated by a comma",
        }
    }
}

/// Returns the attribute of an entry of a map.
fn entry(call: &Call) -> Option<&str> {
    let map = call.arguments.first().filter(|_| call.name == INDEX)?;
    match &map.node {
        Node::Attribute(name) => Some(name),
        Node::Chain(Chain::FirstOf, operands) => match &operands.first()?.node {
            Node::Attribute(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// Checks that the name of a header is in lower case, as in attributes.
fn header_name(call: &Call) -> Option<DoubtfulCall> {
    entry(call).filter(|map| matches!(*map, "request.headers" | "response.headers"))?;
    let key = call.arguments.get(1)?;
    let name = constant(key)?;
    let lower = name.to_ascii_lowercase();
    (lower != name).then(|| {
        let reason = format!("there is never a header {name}: the names of headers are in lower case");
        DoubtfulCall::new(key.span, reason, format!("write {lower:?}"))
    })
}

const METHODS: [&str; 9] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];

/// Checks the case of methods and schemes that are compared.
fn letter_case(call: &Call, span: Span) -> Option<DoubtfulCall> {
    let (operand, _, constant) = comparison(call)?;
    let Literal::Str(text) = constant else { return None };
    let (case, right) = match attribute(operand)?.as_str() {
        "request.method" => ("upper", METHODS.into_iter().find(|method| method.eq_ignore_ascii_case(text))?),
        "request.scheme" => {
            ("lower", ["http", "https"].into_iter().find(|known| known.eq_ignore_ascii_case(text))?)
        }
        _ => return None,
    };
    (right != text).then(|| {
        let reason = format!("never equal: it is in {case} case");
        DoubtfulCall::new(span, reason, format!("write {right:?}"))
    })
}

/// Checks that a path is not compared to its end with the query.
fn path_with_query(call: &Call, span: Span) -> Option<DoubtfulCall> {
    let mut operands = call.receiver.as_deref().into_iter().chain(&call.arguments);
    let (first, second) = (operands.next()?, operands.next()?);
    let [is_first, is_second] = [first, second].map(|ast| ClientText::of(ast) == Some(ClientText::Path));
    let to_end = match call.name.as_str() {
        "==" | "!=" => is_first || is_second,
        "endsWith" => is_first,
        "match" => is_first && constant(second).is_some_and(|pattern| !pattern.ends_with('*')),
        "matches" => is_second && constant(first).is_some_and(|pattern| pattern.ends_with('$')),
        _ => false,
    };
    to_end.then(|| {
        DoubtfulCall::new(
            span,
            ClientText::Path.reason(),
            "write `(request.url_path | request.path | \"/\")` for `request.path`",
        )
    })
}

/// Checks that the pattern of `matches` is its receiver.
fn exchanged(call: &Call, span: Span, text: &str) -> Option<DoubtfulCall> {
    let receiver = call.receiver.as_deref().filter(|_| call.name == "matches")?;
    let argument = call.arguments.first()?;
    if constant(receiver).is_some() || constant(argument).is_none() {
        return None;
    }
    let [receiver, argument] = [receiver, argument].map(|ast| ast.span.of(text));
    let reason = format!(
        "the receiver of `matches` is the regular expression, here `{receiver}`, and {argument} the text"
    );
    Some(DoubtfulCall::new(span, reason, format!("write `{argument}.matches({receiver})`")))
}

/// Checks that the pattern of `match` has no `*` that is not a wildcard.
fn wildcards(call: &Call) -> Option<DoubtfulCall> {
    let pattern = call.arguments.last().filter(|_| call.name == "match")?;
    let text = constant(pattern)?;
    let literal = text.strip_suffix('*').or_else(|| text.strip_prefix('*')).unwrap_or(text);
    let reason = "only one `*`, at the end of a pattern or else at its start, is a wildcard; any other stands for itself";
    literal.contains('*').then(|| {
        let help = "use a regular expression, such as `\"^/a.*b\".matches(request.url_path)`";
        DoubtfulCall::new(pattern.span, reason, help)
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
