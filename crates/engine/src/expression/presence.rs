//! What becomes of an expression where a request lacks attributes (docs/behaviour/expressions.md#attributes-that-are-absent): the
//! traps that can be seen before there is a request.

use std::fmt;

use super::{
    span::Span,
    syntax::{Ast, Chain, Node},
};

/// What an expression needs, and where it is not defended though it looks so.
#[derive(Debug, Default)]
pub(super) struct Presence {
    pub(super) needed: Box<[Box<str>]>,
    pub(super) idle: Box<[IdleFallback]>,
}

/// A `|` that does not do what it seems to: only attributes and entries of maps can be absent, so what stands on its left has a
/// value or fails, and what stands on its right is never used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleFallback {
    /// What stands on the left.
    pub left: Box<str>,
}

impl fmt::Display for IdleFallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "what stands on the right of `|` is never used: {} has a value or fails, for only attributes and entries of maps \
             can be absent; put the `|` behind the attribute itself, as in f(a | \"x\")",
            self.left
        )
    }
}

impl Presence {
    pub(super) fn of(ast: &Ast, text: &str) -> Self {
        let (mut needed, mut idle) = (Vec::new(), Vec::new());
        walk(ast, false, &mut needed, &mut idle);
        needed.sort_unstable();
        needed.dedup();
        let left = |span: &Span| text.get(span.start as usize..span.end as usize).unwrap_or_default().into();
        let idle = idle.iter().map(|span| IdleFallback { left: left(span) });
        Self { needed: needed.into(), idle: idle.collect() }
    }
}

/// `defended`: something stands in for this part where it is absent.
fn walk(ast: &Ast, defended: bool, needed: &mut Vec<Box<str>>, idle: &mut Vec<Span>) {
    match &ast.node {
        Node::Literal(_) => {}
        Node::Attribute(name) if !defended => needed.push(name.as_str().into()),
        Node::Attribute(_) => {}
        Node::Chain(Chain::FirstOf, operands) => {
            for (index, operand) in operands.iter().enumerate() {
                let is_last = index + 1 == operands.len();
                if !is_last && !can_be_absent(operand) {
                    idle.push(operand.span);
                }
                walk(operand, (defended || !is_last) && can_be_absent(operand), needed, idle);
            }
        }
        Node::Chain(_, operands) => operands.iter().for_each(|operand| walk(operand, false, needed, idle)),
        Node::Call(call) => {
            let parts = call.receiver.iter().map(|receiver| &**receiver).chain(&call.arguments);
            let defended = defended && call.name == ENTRY;
            parts.for_each(|part| walk(part, defended, needed, idle));
        }
    }
}

/// The name of `map["key"]`.
const ENTRY: &str = "[]";

fn can_be_absent(ast: &Ast) -> bool {
    match &ast.node {
        Node::Attribute(_) | Node::Chain(Chain::FirstOf, _) => true,
        Node::Call(call) => call.name == ENTRY,
        Node::Literal(_) | Node::Chain(..) => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::expression::syntax::parse;

    fn presence(text: &str) -> (Vec<String>, Vec<String>) {
        let presence = Presence::of(&parse(text).unwrap(), text);
        let idle = presence.idle.into_iter().map(|idle| idle.left.into_string());
        (presence.needed.iter().map(ToString::to_string).collect(), idle.collect())
    }

    #[test]
    fn attributes_outside_of_a_fallback_are_needed() {
        assert_eq!(presence(r#"b == "x" && a.b == a.b"#).0, ["a.b", "b"]);
        assert_eq!(presence(r#"(a | b) == "x""#).0, ["b"]);
        assert_eq!(presence(r#"(a | b | "") == "x""#).0, [""; 0]);
        assert_eq!(presence(r#"(m[k] | "") == "x""#).0, [""; 0], "the map and the key may be missing");
        assert_eq!(presence(r#"m[k] == "x""#).0, ["k", "m"]);
        assert_eq!(presence(r#"(a | (b | "")) == "x""#).0, [""; 0]);
        assert_eq!(presence(r#"((a | b) | "") == "x""#).0, [""; 0]);
    }

    /// The three of docs/behaviour/expressions.md#attributes-that-are-absent.
    #[test]
    fn a_fallback_for_what_cannot_be_absent_is_idle() {
        let idle = |text| presence(text).1;
        assert_eq!(idle(r#"toLower(as) | "q""#), ["toLower(as)"]);
        assert_eq!(idle(r#"(as == "x") | false"#), [r#"(as == "x")"#]);
        assert_eq!(idle(r#"as + "y" | "q""#), [r#"as + "y""#]);
        assert_eq!(presence(r#"toLower(as) | "q""#).0, ["as"], "and its attributes are needed");
        assert_eq!(idle(r#"toLower(as | "q")"#), [""; 0]);
        assert_eq!(idle(r#"a | m["k"] | (b | c) | "d""#), [""; 0]);
    }
}
