//! Conditions that never match: terms of a conjunction that exclude each other.

use super::{
    code::{Relation, ordered},
    compile::functions::Function,
    syntax::{Ast, Call, Chain, Literal, Node, parse},
};

/// The requirements of a condition in Mixer's own language on each request that it matches.
#[derive(Debug, Default)]
pub(crate) struct Requirements<'t> {
    /// The source of a term that is never true.
    never: Option<&'t str>,
    comparisons: Vec<Comparison<'t>>,
}

/// A term that compares an operand with a constant.
#[derive(Debug)]
struct Comparison<'t> {
    /// The source of the term.
    term: &'t str,
    /// The source of the operand.
    operand: &'t str,
    /// The attribute, also if the operand has a fallback for its absence.
    attribute: Option<String>,
    /// A comparison, `startsWith` or `endsWith`.
    function: Function,
    constant: Literal,
}

impl<'t> Requirements<'t> {
    /// Returns the requirements of a condition; none for an invalid one.
    pub(crate) fn of(text: &'t str) -> Self {
        let mut found = Self::default();
        if let Ok(ast) = parse(text) {
            found.add(&ast, text);
        }
        found
    }

    fn add(&mut self, ast: &Ast, text: &'t str) {
        match &ast.node {
            Node::Chain(Chain::And, terms) => terms.iter().for_each(|term| self.add(term, text)),
            Node::Literal(Literal::Bool(false)) => self.never = Some(ast.span.of(text)),
            Node::Call(call) => {
                if let Some((operand, function, constant)) = comparison(call) {
                    let (attribute, constant) = (attribute(operand), constant.clone());
                    let (term, operand) = (ast.span.of(text), operand.span.of(text));
                    self.comparisons.push(Comparison { term, operand, attribute, function, constant });
                }
            }
            _ => {}
        }
    }

    /// Returns why no request can match, if so.
    pub(crate) fn contradiction(&self) -> Option<String> {
        if let Some(never) = self.never {
            return Some(format!("`{never}` is never true"));
        }
        let mut pairs = self
            .comparisons
            .iter()
            .enumerate()
            .flat_map(|(index, one)| self.comparisons[index + 1..].iter().map(move |other| (one, other)));
        let (one, other) = pairs.find(|(one, other)| one.operand == other.operand && one.excludes(other))?;
        Some(format!("`{}` and `{}` are never true together", one.term, other.term))
    }

    /// Iterates over the texts that an attribute must be equal to.
    pub(crate) fn equals(&self, attribute: &str) -> impl Iterator<Item = &str> {
        self.comparisons.iter().filter_map(move |comparison| match &comparison.constant {
            Literal::Str(text) => (comparison.function == EQUAL
                && comparison.attribute.as_deref() == Some(attribute))
            .then_some(text.as_str()),
            _ => None,
        })
    }
}

pub(super) const EQUAL: Function = Function::Compare(Relation::Equal);
pub(super) const NOT_EQUAL: Function = Function::Compare(Relation::NotEqual);

/// Returns the operand, the function and the constant of a term.
pub(super) fn comparison(call: &Call) -> Option<(&Ast, Function, &Literal)> {
    let function = Function::find(&call.name)?;
    if !matches!(function, Function::Compare(_) | Function::StartsWith | Function::EndsWith) {
        return None;
    }
    let mut operands = call.receiver.as_deref().into_iter().chain(&call.arguments);
    let (left, right) = (operands.next()?, operands.next()?);
    match (&left.node, &right.node, function) {
        (Node::Literal(_), Node::Literal(_), _) => None,
        (_, Node::Literal(constant), _) => Some((left, function, constant)),
        (Node::Literal(constant), _, Function::Compare(relation)) => {
            Some((right, Function::Compare(relation.reversed()), constant))
        }
        _ => None,
    }
}

pub(super) fn attribute(operand: &Ast) -> Option<String> {
    match &operand.node {
        Node::Attribute(name) => Some(name.clone()),
        Node::Chain(Chain::FirstOf, operands) => attribute(operands.first()?),
        _ => None,
    }
}

impl Comparison<'_> {
    fn excludes(&self, other: &Self) -> bool {
        if self.function == EQUAL {
            return !other.accepts(&self.constant);
        }
        if other.function == EQUAL {
            return !self.accepts(&other.constant);
        }
        let (Function::Compare(own), Function::Compare(others)) = (self.function, other.function) else {
            return false;
        };
        is_lower_bound(own) && is_upper_bound(others) && is_empty(self, other)
            || is_upper_bound(own) && is_lower_bound(others) && is_empty(other, self)
    }

    /// Returns whether the term is true if the operand has this value; true for values that are not compared here.
    fn accepts(&self, value: &Literal) -> bool {
        match (self.function, value, &self.constant) {
            (EQUAL, value, constant) => value == constant,
            (NOT_EQUAL, value, constant) => value != constant,
            (Function::StartsWith, Literal::Str(value), Literal::Str(prefix)) => value.starts_with(prefix),
            (Function::EndsWith, Literal::Str(value), Literal::Str(suffix)) => value.ends_with(suffix),
            (Function::Compare(relation), Literal::Int(value), Literal::Int(bound)) => {
                ordered(relation, value, bound)
            }
            _ => true,
        }
    }
}

fn is_lower_bound(relation: Relation) -> bool {
    matches!(relation, Relation::Greater | Relation::GreaterOrEqual)
}

fn is_upper_bound(relation: Relation) -> bool {
    matches!(relation, Relation::Less | Relation::LessOrEqual)
}

/// Returns whether no integer is within both bounds.
fn is_empty(lower: &Comparison<'_>, upper: &Comparison<'_>) -> bool {
    let (Literal::Int(low), Literal::Int(high)) = (&lower.constant, &upper.constant) else { return false };
    let low = i128::from(*low) + i128::from(lower.function == Function::Compare(Relation::Greater));
    let high = i128::from(*high) - i128::from(upper.function == Function::Compare(Relation::Less));
    low > high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contradiction(text: &str) -> Option<String> {
        Requirements::of(text).contradiction()
    }

    #[test]
    fn terms_that_exclude_each_other_are_named() {
        assert_eq!(
            contradiction(r#"a == "x" && b == 1 && "y" == a"#).as_deref(),
            Some(r#"`a == "x"` and `"y" == a` are never true together"#)
        );
        assert_eq!(contradiction("ab && false").as_deref(), Some("`false` is never true"));
        for text in [
            r#"a == "x" && a != "x""#,
            r#"(b && (a | "") == "x") && (a | "") == "y""#,
            r#"a.startsWith("/admin") && a == "/x""#,
            r#"h["k"] == "a" && h["k"] == "b""#,
            "n > 4 && n < 5",
            "n >= 500 && n == 404",
        ] {
            assert!(contradiction(text).is_some(), "{text}");
        }
    }

    #[test]
    fn terms_that_some_request_satisfies_are_not() {
        for text in [
            r#"a == "x" || a == "y""#,
            r#"a == "x" && b == "y""#,
            r#"a != "x" && a != "y""#,
            r#"(a | "x") == "x" && (a | "y") == "y""#,
            r#"a.startsWith("/admin") && a == "/admin/x""#,
            "n >= 5 && n <= 5",
            "n < 5 && n < 4",
            "not valid (",
        ] {
            assert_eq!(contradiction(text), None, "{text}");
        }
    }

    #[test]
    fn required_values_of_an_attribute_are_found_behind_fallbacks() {
        let text = r#"(destination.namespace | "") == "shop" && source.namespace != "x""#;
        let requirements = Requirements::of(text);
        assert_eq!(requirements.equals("destination.namespace").collect::<Vec<_>>(), ["shop"]);
        assert_eq!(requirements.equals("source.namespace").count(), 0);
    }
}
