//! The parser of Mixer's own expression language.

mod ast;
mod lexer;
mod literal;
mod parser;

#[cfg(feature = "cel")]
pub(crate) use ast::MAX_NESTING;
pub(crate) use ast::{Ast, Call, Chain, Node};
pub(crate) use literal::Literal;
pub(crate) use parser::parse;
