//! From syntax tree to code: names become slots, types are checked, what is known already is computed.

mod build;
mod check;
mod functions;

use std::sync::Arc;

use self::{
    check::{Checked, argument_type, callee},
    functions::{Excess, Function},
};
use super::{
    code::{Attribute, Code, Expr},
    error::{CompileError, CompileErrorKind},
    span::Span,
    syntax::{Ast, Call, Chain, Literal, Node},
};
use crate::attribute::Vocabulary;
use mixer_adapter_core::value::ValueType;

/// A compiled part of an expression.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) code: Code,
    pub(crate) value_type: ValueType,
    span: Span,
}

pub(crate) fn compile(ast: &Ast, vocabulary: &Vocabulary) -> Result<Typed, CompileError> {
    let (code, value_type) = match &ast.node {
        Node::Literal(literal) => constant(literal),
        Node::Attribute(name) => attribute(name, ast.span, vocabulary)?,
        Node::Chain(chain, operands) => return chained(*chain, operands, ast.span, vocabulary),
        Node::Call(call) => return called(call, ast.span, vocabulary),
    };
    Ok(Typed { code, value_type, span: ast.span })
}

fn constant(literal: &Literal) -> (Code, ValueType) {
    match literal {
        Literal::Text(text) => (Code::Text(Expr::Constant(Arc::from(text.as_str()))), ValueType::String),
        Literal::Int(number) => (Code::Int(Expr::Constant(*number)), ValueType::Int64),
        Literal::Double(number) => (Code::Double(Expr::Constant(*number)), ValueType::Double),
        Literal::Bool(truth) => (Code::Truth(Expr::Constant(*truth)), ValueType::Bool),
        Literal::Duration(nanos) => (Code::Length(Expr::Constant(*nanos)), ValueType::Duration),
    }
}

fn attribute(name: &str, span: Span, vocabulary: &Vocabulary) -> Result<(Code, ValueType), CompileError> {
    let error = |message: String| CompileError::new(CompileErrorKind::UnknownAttribute, span, message);
    let Some(declaration) = vocabulary.find(name) else {
        let error = error(format!("there is no attribute `{name}`"));
        return Err(match similar(name, vocabulary) {
            Some(similar) => error.help(format!("there is one named `{similar}`")),
            None => error.help("attributes are declared in an attribute manifest"),
        });
    };
    let declared = declaration.value_type;
    let attribute = Attribute::new(declaration, span);
    let code = match declared {
        ValueType::String | ValueType::DnsName | ValueType::EmailAddress | ValueType::Uri => {
            Code::Text(Expr::Attribute(attribute))
        }
        ValueType::Int64 => Code::Int(Expr::Attribute(attribute)),
        ValueType::Double => Code::Double(Expr::Attribute(attribute)),
        ValueType::Bool => Code::Truth(Expr::Attribute(attribute)),
        ValueType::Timestamp => Code::Instant(Expr::Attribute(attribute)),
        ValueType::Duration => Code::Length(Expr::Attribute(attribute)),
        ValueType::IpAddress => Code::Address(Expr::Attribute(attribute)),
        ValueType::StringMap => Code::Map(Expr::Attribute(attribute)),
        ValueType::Unspecified => {
            return Err(error(format!("attribute `{name}` is declared without a type")));
        }
    };
    Ok((code, declared))
}

/// The attribute whose name is closest to one that does not exist, if it is close at all.
fn similar<'v>(name: &str, vocabulary: &'v Vocabulary) -> Option<&'v str> {
    let close = |candidate: &&'v Arc<str>| candidate.len().abs_diff(name.len()) <= 2;
    let candidates = vocabulary.iter().map(|declaration| declaration.name).filter(close);
    let (distance, closest) = candidates.map(|candidate| (distance(name, candidate), candidate)).min()?;
    (distance <= 2 && distance * 3 <= name.len()).then_some(closest)
}

/// How many bytes have to be put in, taken out or replaced.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn chained(
    chain: Chain,
    operands: &[Ast],
    span: Span,
    vocabulary: &Vocabulary,
) -> Result<Typed, CompileError> {
    let mut compiled: Vec<Typed> = Vec::with_capacity(operands.len());
    for operand in operands {
        let typed = compile(operand, vocabulary)?;
        let wanted = match chain {
            Chain::And | Chain::Or => ValueType::Bool,
            Chain::FirstOf | Chain::Add => compiled.first().unwrap_or(&typed).value_type,
        };
        if typed.value_type != wanted {
            return Err(argument_type(chain.symbol(), wanted, typed.value_type, typed.span));
        }
        compiled.push(typed);
    }
    build::chain(chain, compiled, span)
}

fn called(call: &Call, span: Span, vocabulary: &Vocabulary) -> Result<Typed, CompileError> {
    let function = callee(call)?;
    let mut checked = Checked::new(call, function);
    let mut operands = Vec::with_capacity(call.arguments.len() + 1);
    if let Some(receiver) = &call.receiver {
        let receiver = compile(receiver, vocabulary)?;
        checked.receiver(receiver.value_type, receiver.span)?;
        operands.push(receiver);
    }
    checked.arity(span)?;
    for (index, argument) in call.arguments.iter().enumerate() {
        let argument = compile(argument, vocabulary)?;
        checked.argument(index, argument.value_type, argument.span)?;
        operands.push(argument);
    }
    let unused = excess(function, &mut operands);
    let mut typed = build::call(function, checked.returns(), operands, call.name_span, span)?;
    if !unused.is_empty() {
        typed.code = build::after(unused, typed.code);
    }
    Ok(typed)
}

/// Takes away the operands a function has too many; returns those that are evaluated nevertheless.
fn excess(function: Function, operands: &mut Vec<Typed>) -> Vec<Code> {
    let signature = function.signature();
    let wanted = signature.arguments.len() + usize::from(signature.receiver.is_some());
    match function.excess() {
        Excess::Used => Vec::new(),
        Excess::Ignored => {
            operands.truncate(wanted);
            Vec::new()
        }
        Excess::Evaluated => {
            let excess = operands.len().saturating_sub(wanted);
            operands.drain(..excess).map(|typed| typed.code).collect()
        }
    }
}
