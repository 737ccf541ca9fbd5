//! From text to syntax tree.

mod ast;
mod lexer;
mod literal;
mod parser;

pub(crate) use ast::{Ast, Call, Chain, Node};
pub(crate) use literal::Literal;
pub(crate) use parser::parse;
