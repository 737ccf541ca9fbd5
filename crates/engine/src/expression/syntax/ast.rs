//! The syntax tree of an expression.

use std::iter;

use super::literal::Literal;
use crate::expression::{
    error::{CompileError, CompileErrorKind},
    fields::{BODY, JSON},
    span::Span,
};

/// Maximum nesting of an expression, which bounds all recursion over it.
pub(crate) const MAX_NESTING: usize = 200;

#[derive(Clone, Debug)]
pub(crate) struct Ast {
    pub(crate) node: Node,
    pub(crate) span: Span,
    depth: usize,
}

impl Ast {
    /// # Errors
    /// The node would be nested deeper than [`MAX_NESTING`].
    pub(crate) fn new(node: Node, span: Span) -> Result<Self, CompileError> {
        let depth = node.children().map(|child| child.depth).max().unwrap_or(0) + 1;
        if depth > MAX_NESTING { Err(too_deep(span)) } else { Ok(Self { node, span, depth }) }
    }

    /// Iterates over this part of the expression and all parts of it, in no particular order.
    fn parts(&self) -> impl Iterator<Item = &Self> {
        let mut open = vec![self];
        iter::from_fn(move || {
            let ast = open.pop()?;
            open.extend(ast.node.children());
            Some(ast)
        })
    }

    /// Iterates over all calls in the expression with their locations, in no particular order.
    pub(in crate::expression) fn calls(&self) -> impl Iterator<Item = (&Call, Span)> {
        self.parts().filter_map(|part| match &part.node {
            Node::Call(call) => Some((call, part.span)),
            _ => None,
        })
    }

    /// Iterates over the names of all attributes, some more than once.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = &str> {
        self.parts().filter_map(|part| match &part.node {
            Node::Attribute(name) => Some(name.as_str()),
            _ => None,
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Literal(Literal),
    /// A dotted name: one flat attribute name.
    Attribute(String),
    /// `a || b || c` of any length is one node, so that a chain does not count as nesting.
    Chain(Chain, Vec<Ast>),
    Call(Call),
}

impl Node {
    /// Iterates over the operands, the receiver of a method first.
    pub(crate) fn children(&self) -> impl DoubleEndedIterator<Item = &Ast> {
        let (receiver, operands): (_, &[Ast]) = match self {
            Node::Literal(_) | Node::Attribute(_) => (None, &[]),
            Node::Chain(_, operands) => (None, operands),
            Node::Call(call) => (call.receiver.as_deref(), &call.arguments),
        };
        receiver.into_iter().chain(operands)
    }
}

/// The operators that are chained in practice. All four are left-associative, so a chain equals nested pairs.
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
        [Chain::Or, Chain::And, Chain::FirstOf, Chain::Add].into_iter().find(|chain| chain.symbol() == symbol)
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

/// A call of a function, a method or another operator, by its name or symbol.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) name_span: Span,
    pub(crate) receiver: Option<Box<Ast>>,
    /// The receiver is a map entry without parentheses, which Mixer's own language does not allow.
    pub(crate) on_entry: bool,
    pub(crate) arguments: Vec<Ast>,
}

impl Call {
    /// Returns whether the value is a field of the body of the request.
    pub(crate) fn reads_body(&self) -> bool {
        self.name == JSON && self.arguments.iter().any(|part| part.attributes().any(|name| name == BODY))
    }
}

pub(crate) fn too_deep(span: Span) -> CompileError {
    let message = format!("this expression is nested more than {MAX_NESTING} levels deep");
    CompileError::new(CompileErrorKind::TooLarge, span, message)
}
