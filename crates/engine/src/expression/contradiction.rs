//! Conditions that never match: terms of a conjunction that exclude each other.

use super::syntax::{Ast, Call, Chain, Literal, Node, parse};

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
    relation: Relation,
    constant: Literal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    StartsWith,
    EndsWith,
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
        let source = |ast: &Ast| text.get(ast.span.start as usize..ast.span.end as usize).unwrap_or_default();
        match &ast.node {
            Node::Chain(Chain::And, terms) => terms.iter().for_each(|term| self.add(term, text)),
            Node::Literal(Literal::Bool(false)) => self.never = Some(source(ast)),
            Node::Call(call) => {
                if let Some((operand, relation, constant)) = comparison(call) {
                    let (attribute, constant) = (attribute(operand), constant.clone());
                    let (term, operand) = (source(ast), source(operand));
                    self.comparisons.push(Comparison { term, operand, attribute, relation, constant });
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
        let of_attribute = move |comparison: &&Comparison<'_>| {
            comparison.relation == Relation::Equal && comparison.attribute.as_deref() == Some(attribute)
        };
        self.comparisons.iter().filter(of_attribute).filter_map(|comparison| match &comparison.constant {
            Literal::Str(text) => Some(text.as_str()),
            _ => None,
        })
    }
}

/// Returns the operand, the relation and the constant of a term.
pub(super) fn comparison(call: &Call) -> Option<(&Ast, Relation, &Literal)> {
    let relation = match call.name.as_str() {
        "==" => Relation::Equal,
        "!=" => Relation::NotEqual,
        "<" => Relation::Less,
        "<=" => Relation::LessOrEqual,
        ">" => Relation::Greater,
        ">=" => Relation::GreaterOrEqual,
        "startsWith" => Relation::StartsWith,
        "endsWith" => Relation::EndsWith,
        _ => return None,
    };
    let mut operands = call.receiver.as_deref().into_iter().chain(&call.arguments);
    let (left, right) = (operands.next()?, operands.next()?);
    match (&left.node, &right.node) {
        (Node::Literal(_), Node::Literal(_)) => None,
        (_, Node::Literal(constant)) => Some((left, relation, constant)),
        (Node::Literal(constant), _) => Some((right, relation.reversed()?, constant)),
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

impl Relation {
    /// The relation with its operands exchanged.
    fn reversed(self) -> Option<Self> {
        Some(match self {
            Self::Equal | Self::NotEqual => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            Self::StartsWith | Self::EndsWith => return None,
        })
    }
}

impl Comparison<'_> {
    fn excludes(&self, other: &Self) -> bool {
        match (self.relation, other.relation) {
            (Relation::Equal, _) => !other.accepts(&self.constant),
            (_, Relation::Equal) => !self.accepts(&other.constant),
            (Relation::Less | Relation::LessOrEqual, Relation::Greater | Relation::GreaterOrEqual) => {
                is_empty(other, self)
            }
            (Relation::Greater | Relation::GreaterOrEqual, Relation::Less | Relation::LessOrEqual) => {
                is_empty(self, other)
            }
            _ => false,
        }
    }

    /// Returns whether the term is true if the operand has this value; true for values that are not compared here.
    fn accepts(&self, value: &Literal) -> bool {
        let constant = &self.constant;
        match (self.relation, value, constant) {
            (Relation::Equal, value, constant) => value == constant,
            (Relation::NotEqual, value, constant) => value != constant,
            (Relation::StartsWith, Literal::Str(value), Literal::Str(prefix)) => value.starts_with(prefix),
            (Relation::EndsWith, Literal::Str(value), Literal::Str(suffix)) => value.ends_with(suffix),
            (Relation::Less, Literal::Int(value), Literal::Int(bound)) => value < bound,
            (Relation::LessOrEqual, Literal::Int(value), Literal::Int(bound)) => value <= bound,
            (Relation::Greater, Literal::Int(value), Literal::Int(bound)) => value > bound,
            (Relation::GreaterOrEqual, Literal::Int(value), Literal::Int(bound)) => value >= bound,
            _ => true,
        }
    }
}

/// Returns whether no integer is within both bounds.
fn is_empty(lower: &Comparison<'_>, upper: &Comparison<'_>) -> bool {
    let (Literal::Int(low), Literal::Int(high)) = (&lower.constant, &upper.constant) else { return false };
    let low = i128::from(*low) + i128::from(lower.relation == Relation::Greater);
    let high = i128::from(*high) - i128::from(upper.relation == Relation::Less);
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
