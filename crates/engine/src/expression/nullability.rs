//! Static analysis of missing attributes (docs/behaviour/expressions.md#attributes-that-are-absent): which attributes an
//! expression requires and which fallbacks are never used.

use std::fmt;

use super::{
    fields,
    span::Span,
    syntax::{Ast, Chain, Node},
};
use mixer_adapter_core::value::ValueType;

/// The result of the analysis.
#[derive(Debug, Default)]
pub(crate) struct Nullability {
    /// The attributes without which evaluation may fail, sorted by name. None in CEL, where missing attributes read as
    /// zero values.
    pub(crate) required: Box<[Required]>,
    /// The operands of `|` that are never used.
    pub(crate) unused_fallbacks: Box<[UnusedFallback]>,
}

/// An attribute without which evaluation may fail.
#[derive(Debug)]
pub(crate) struct Required {
    pub(crate) attribute: Box<str>,
    /// The source of the operand that needs a fallback: the attribute, or an entry of it.
    pub(crate) operand: Box<str>,
}

impl Required {
    /// The operand with a fallback of its type, which is the attribute's unless the operand is an entry.
    pub(crate) fn with_fallback(&self, attribute: ValueType) -> String {
        let is_entry = self.operand != self.attribute;
        let fallback = match if is_entry { ValueType::String } else { attribute } {
            ValueType::Unspecified | ValueType::String => "\"\"",
            ValueType::Int64 => "0",
            ValueType::Double => "0.0",
            ValueType::Bool => "false",
            ValueType::Timestamp => "timestamp(\"1970-01-01T00:00:00Z\")",
            ValueType::Duration => "\"0s\"",
            ValueType::IpAddress => "ip(\"0.0.0.0\")",
            ValueType::DnsName => "dnsName(\"unknown.invalid\")",
            ValueType::EmailAddress => "email(\"unknown@unknown.invalid\")",
            ValueType::Uri => "uri(\"unknown:\")",
            ValueType::StringMap => "emptyStringMap()",
        };
        format!("({} | {fallback})", self.operand)
    }
}

/// A `|` whose right operand is never used: only attributes, map entries and fields of a request can be missing, and the left
/// operand is none of them, so it has a value or fails.
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
            "the right operand of `|` is never used: {} has a value or fails, because only attributes, map entries and \
             fields can be missing; put the `|` directly after the attribute, as in f(a | \"x\")",
            self.left
        )
    }
}

impl Nullability {
    pub(super) fn of(ast: &Ast, text: &str) -> Self {
        let (mut required, mut unused) = (Vec::new(), Vec::new());
        walk(ast, ast.span, false, &mut required, &mut unused);
        required.sort_by_key(|(name, _)| *name);
        required.dedup_by_key(|(name, _)| *name);
        let required = required
            .into_iter()
            .map(|(name, span)| Required { attribute: name.into(), operand: span.of(text).into() });
        let unused = unused.into_iter().map(|span| UnusedFallback { left: span.of(text).into() });
        Self { required: required.collect(), unused_fallbacks: unused.collect() }
    }
}

/// Analyzes a part of an expression. `operand` is the entry that it is part of, or the part itself; `has_fallback`, whether another
/// operand is used if it is missing.
fn walk<'a>(
    ast: &'a Ast,
    operand: Span,
    has_fallback: bool,
    required: &mut Vec<(&'a str, Span)>,
    unused: &mut Vec<Span>,
) {
    match &ast.node {
        Node::Literal(_) => {}
        Node::Attribute(name) if !has_fallback => required.push((name, operand)),
        Node::Attribute(_) => {}
        Node::Chain(Chain::FirstOf, operands) => {
            for (index, operand) in operands.iter().enumerate() {
                let is_last = index + 1 == operands.len();
                if !is_last && !can_be_missing(operand) {
                    unused.push(operand.span);
                }
                let has_fallback = (has_fallback || !is_last) && can_be_missing(operand);
                walk(operand, operand.span, has_fallback, required, unused);
            }
        }
        Node::Chain(_, operands) => {
            operands.iter().for_each(|operand| walk(operand, operand.span, false, required, unused));
        }
        Node::Call(call) => {
            let can_be_missing = can_be_missing(ast);
            for part in ast.node.children() {
                let operand =
                    if can_be_missing && call.name != fields::TO_INT { ast.span } else { part.span };
                walk(part, operand, has_fallback && can_be_missing, required, unused);
            }
        }
    }
}

/// The name of the operator in `map["key"]`.
pub(super) const INDEX: &str = "[]";

fn can_be_missing(ast: &Ast) -> bool {
    match &ast.node {
        Node::Attribute(_) | Node::Chain(Chain::FirstOf, _) => true,
        Node::Call(call) if call.name == fields::TO_INT => call.arguments.last().is_some_and(can_be_missing),
        Node::Call(call) => call.name == INDEX || fields::FUNCTIONS.contains(&call.name.as_str()),
        Node::Literal(_) | Node::Chain(..) => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        attribute::Vocabulary,
        expression::{Expression, syntax::parse},
    };

    fn analyze(text: &str) -> (Vec<String>, Vec<String>) {
        let nullability = Nullability::of(&parse(text).unwrap(), text);
        let unused = nullability.unused_fallbacks.into_iter().map(|unused| unused.left.into_string());
        (
            nullability.required.iter().map(|required| required.attribute.to_string()).collect(),
            unused.collect(),
        )
    }

    #[test]
    fn a_fallback_has_the_type_of_its_operand() {
        use ValueType::*;
        for value_type in [
            String,
            Int64,
            Double,
            Bool,
            Timestamp,
            Duration,
            IpAddress,
            DnsName,
            EmailAddress,
            Uri,
            StringMap,
        ] {
            let mut vocabulary = Vocabulary::new();
            vocabulary.declare("a.b", value_type).unwrap();
            let operands: &[&str] = if value_type == StringMap { &["a.b", "a.b[\"k\"]"] } else { &["a.b"] };
            for operand in operands {
                let needy = Expression::compile(operand, &vocabulary).unwrap();
                let [required] = &*needy.nullability.required else { panic!("{operand}") };
                let advised = required.with_fallback(value_type);
                assert!(advised.starts_with(&format!("({operand} | ")), "{advised}");
                let advised = Expression::compile(&advised, &vocabulary).unwrap();
                assert_eq!(advised.value_type(), needy.value_type());
                assert!(advised.nullability.required.is_empty() && advised.invalid_constants().is_empty());
            }
        }
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
