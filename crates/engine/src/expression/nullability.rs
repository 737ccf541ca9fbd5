//! Static analysis of missing attributes (docs/behaviour/expressions.md#attributes-that-are-absent): which attributes an
//! expression requires and which fallbacks are never used.

use std::fmt;

use super::{
    span::Span,
    syntax::{Ast, Chain, Node},
};

/// The result of the analysis.
#[derive(Debug, Default)]
pub(super) struct Nullability {
    pub(super) required: Box<[Box<str>]>,
    pub(super) unused_fallbacks: Box<[UnusedFallback]>,
}

/// A `|` whose right operand is never used: only attributes and map entries can be missing, and the left operand is
/// neither, so it has a value or fails.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnusedFallback {
    /// The source of the left operand.
    pub left: Box<str>,
}

impl fmt::Display for UnusedFallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the right operand of `|` is never used: {} has a value or fails, because only attributes and map entries can be \
             missing; put the `|` directly after the attribute, as in f(a | \"x\")",
            self.left
        )
    }
}

impl Nullability {
    pub(super) fn of(ast: &Ast, text: &str) -> Self {
        let (mut required, mut unused) = (Vec::new(), Vec::new());
        walk(ast, false, &mut required, &mut unused);
        required.sort_unstable();
        required.dedup();
        let left = |span: &Span| text.get(span.start as usize..span.end as usize).unwrap_or_default().into();
        let unused = unused.iter().map(|span| UnusedFallback { left: left(span) });
        Self { required: required.into(), unused_fallbacks: unused.collect() }
    }
}

/// `has_fallback`: another operand is used if this one is missing.
fn walk(ast: &Ast, has_fallback: bool, required: &mut Vec<Box<str>>, unused: &mut Vec<Span>) {
    match &ast.node {
        Node::Literal(_) => {}
        Node::Attribute(name) if !has_fallback => required.push(name.as_str().into()),
        Node::Attribute(_) => {}
        Node::Chain(Chain::FirstOf, operands) => {
            for (index, operand) in operands.iter().enumerate() {
                let is_last = index + 1 == operands.len();
                if !is_last && !can_be_missing(operand) {
                    unused.push(operand.span);
                }
                walk(operand, (has_fallback || !is_last) && can_be_missing(operand), required, unused);
            }
        }
        Node::Chain(_, operands) => {
            operands.iter().for_each(|operand| walk(operand, false, required, unused));
        }
        Node::Call(call) => {
            let parts = call.receiver.iter().map(|receiver| &**receiver).chain(&call.arguments);
            let has_fallback = has_fallback && call.name == INDEX;
            parts.for_each(|part| walk(part, has_fallback, required, unused));
        }
    }
}

/// The name of the operator in `map["key"]`.
const INDEX: &str = "[]";

fn can_be_missing(ast: &Ast) -> bool {
    match &ast.node {
        Node::Attribute(_) | Node::Chain(Chain::FirstOf, _) => true,
        Node::Call(call) => call.name == INDEX,
        Node::Literal(_) | Node::Chain(..) => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::expression::syntax::parse;

    fn analyze(text: &str) -> (Vec<String>, Vec<String>) {
        let nullability = Nullability::of(&parse(text).unwrap(), text);
        let unused = nullability.unused_fallbacks.into_iter().map(|unused| unused.left.into_string());
        (nullability.required.iter().map(ToString::to_string).collect(), unused.collect())
    }

    #[test]
    fn attributes_without_a_fallback_are_required() {
        assert_eq!(analyze(r#"b == "x" && a.b == a.b"#).0, ["a.b", "b"]);
        assert_eq!(analyze(r#"(a | b) == "x""#).0, ["b"]);
        assert_eq!(analyze(r#"(a | b | "") == "x""#).0, [""; 0]);
        assert_eq!(analyze(r#"(m[k] | "") == "x""#).0, [""; 0], "the map and the key may be missing");
        assert_eq!(analyze(r#"m[k] == "x""#).0, ["k", "m"]);
        assert_eq!(analyze(r#"(a | (b | "")) == "x""#).0, [""; 0]);
        assert_eq!(analyze(r#"((a | b) | "") == "x""#).0, [""; 0]);
    }

    /// The three examples of docs/behaviour/expressions.md#attributes-that-are-absent.
    #[test]
    fn a_fallback_for_an_operand_that_cannot_be_missing_is_unused() {
        let unused = |text| analyze(text).1;
        assert_eq!(unused(r#"toLower(as) | "q""#), ["toLower(as)"]);
        assert_eq!(unused(r#"(as == "x") | false"#), [r#"(as == "x")"#]);
        assert_eq!(unused(r#"as + "y" | "q""#), [r#"as + "y""#]);
        assert_eq!(analyze(r#"toLower(as) | "q""#).0, ["as"], "and its attributes are required");
        assert_eq!(unused(r#"toLower(as | "q")"#), [""; 0]);
        assert_eq!(unused(r#"a | m["k"] | (b | c) | "d""#), [""; 0]);
    }
}
