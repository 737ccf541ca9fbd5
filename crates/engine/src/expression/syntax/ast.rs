//! What an expression says, before anything is known about its names.

use super::literal::Literal;
use crate::expression::{
    error::{CompileError, CompileErrorKind},
    span::Span,
};

/// How deep an expression may be nested. Everything that walks one recurses at most this deep.
pub(crate) const MAX_NESTING: usize = 200;

#[derive(Clone, Debug)]
pub(crate) struct Ast {
    pub(crate) node: Node,
    pub(crate) span: Span,
    depth: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Literal(Literal),
    /// A name with its dots: one flat attribute name.
    Attribute(String),
    /// `a || b || c`, however long: one node, so that a chain is not nested.
    Chain(Chain, Vec<Ast>),
    Call(Call),
}

/// The operators that are chained in practice. All four read left to right, so a chain means what the pairs mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    /// `||`
    Or,
    /// `&&`
    And,
    /// `|`
    FirstOf,
    /// `+`
    Add,
}

impl Chain {
    pub(crate) fn of(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "||" => Chain::Or,
            "&&" => Chain::And,
            "|" => Chain::FirstOf,
            "+" => Chain::Add,
            _ => return None,
        })
    }

    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Chain::Or => "||",
            Chain::And => "&&",
            Chain::FirstOf => "|",
            Chain::Add => "+",
        }
    }
}

/// A function, a method or any other operator, by the name or symbol it was written with.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) name_span: Span,
    pub(crate) receiver: Option<Box<Ast>>,
    /// The receiver is a map entry without parentheses around it, which is no syntax of Mixer's own language.
    pub(crate) on_entry: bool,
    pub(crate) arguments: Vec<Ast>,
}

impl Ast {
    /// # Errors
    /// The node would be nested deeper than [`MAX_NESTING`].
    pub(crate) fn new(node: Node, span: Span) -> Result<Self, CompileError> {
        let below = match &node {
            Node::Literal(_) | Node::Attribute(_) => None,
            Node::Chain(_, operands) => operands.iter().map(|operand| operand.depth).max(),
            Node::Call(call) => {
                call.receiver.iter().map(|r| r.depth).chain(call.arguments.iter().map(|a| a.depth)).max()
            }
        };
        let depth = below.unwrap_or(0) + 1;
        if depth > MAX_NESTING { Err(too_deep(span)) } else { Ok(Self { node, span, depth }) }
    }
}

pub(crate) fn too_deep(span: Span) -> CompileError {
    let message = format!("this expression is nested more than {MAX_NESTING} levels deep");
    CompileError::new(CompileErrorKind::TooLarge, span, message)
}
