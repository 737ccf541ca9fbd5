//! The compiler of Mixer's own language: resolves names to slots, checks types and folds constants.

mod build;
mod check;
pub(super) mod functions;

use std::borrow::Cow;

use self::{
    check::{CallChecker, argument_type, callee},
    functions::{Excess, Function},
};
use super::{
    code::{Attribute, Expr, Operand},
    error::{CompileError, CompileErrorKind},
    fields::{BODY, TRUNCATED},
    span::Span,
    syntax::{Ast, Call, Chain, Literal, Node},
};
use crate::attribute::Vocabulary;
use mixer_adapter_core::value::ValueType;

/// A compiled subexpression and its type.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) code: Expr,
    pub(crate) value_type: ValueType,
    span: Span,
}

/// Compiles an expression, or returns all its errors.
pub(crate) fn compile(ast: &Ast, vocabulary: &Vocabulary) -> Result<Typed, Vec<CompileError>> {
    let (code, value_type) = match &ast.node {
        Node::Literal(literal) => constant(literal),
        Node::Attribute(name) => attribute(name, ast.span, vocabulary).map_err(|error| vec![error])?,
        Node::Chain(chain, operands) => return compile_chain(*chain, operands, ast.span, vocabulary),
        Node::Call(call) => return compile_call(call, ast.span, vocabulary),
    };
    Ok(Typed { code, value_type, span: ast.span })
}

fn constant(literal: &Literal) -> (Expr, ValueType) {
    let (constant, value_type) = match literal {
        Literal::Str(text) => (Operand::Str(Cow::Owned(text.clone())), ValueType::String),
        Literal::Int(number) => (Operand::Int(*number), ValueType::Int64),
        Literal::Double(number) => (Operand::Double(*number), ValueType::Double),
        Literal::Bool(value) => (Operand::Bool(*value), ValueType::Bool),
        Literal::Duration(nanos) => (Operand::Duration(*nanos), ValueType::Duration),
    };
    (Expr::Constant(constant), value_type)
}

fn attribute(name: &str, span: Span, vocabulary: &Vocabulary) -> Result<(Expr, ValueType), CompileError> {
    const UNKNOWN: CompileErrorKind = CompileErrorKind::UnknownAttribute;
    let Some(declaration) = vocabulary.find(name) else {
        let help = match (entry(name, vocabulary), vocabulary.similar(name)) {
            (Some(entry), _) => format!("write `{entry}` for an entry of the map"),
            (None, Some(similar)) => format!("did you mean `{similar}`?"),
            (None, None) => "declare it in an attribute manifest".to_owned(),
        };
        return Err(CompileError::new(UNKNOWN, span, format!("unknown attribute `{name}`")).help(help));
    };
    let declared = declaration.value_type;
    if declared == ValueType::Unspecified {
        let message = format!("attribute `{name}` is declared without a type");
        return Err(CompileError::new(UNKNOWN, span, message));
    }
    Ok((Expr::Attribute(Attribute::new(declaration, span)), declared))
}

/// Returns the entry of a map that a name is meant to be: `request.headers["foo"]` for `request.headers.foo`.
fn entry(name: &str, vocabulary: &Vocabulary) -> Option<String> {
    let mut ends = name.rmatch_indices('.').map(|(end, _)| name.split_at(end));
    let (map, key) = ends.find(|(map, _)| {
        vocabulary.find(map).is_some_and(|known| known.value_type == ValueType::StringMap)
    })?;
    Some(format!("{map}[\"{}\"]", &key[1..]))
}

fn compile_chain(
    chain: Chain,
    operands: &[Ast],
    span: Span,
    vocabulary: &Vocabulary,
) -> Result<Typed, Vec<CompileError>> {
    let mut compiled: Vec<Typed> = Vec::with_capacity(operands.len());
    let mut errors = Vec::new();
    for operand in operands {
        let typed = match compile(operand, vocabulary) {
            Ok(typed) => typed,
            Err(found) => {
                errors.extend(found);
                continue;
            }
        };
        let wanted = match chain {
            Chain::And | Chain::Or => ValueType::Bool,
            Chain::FirstOf | Chain::Add => compiled.first().unwrap_or(&typed).value_type,
        };
        if typed.value_type == wanted {
            compiled.push(typed);
        } else {
            errors.push(argument_type(chain.symbol(), wanted, typed.value_type, typed.span));
        }
    }
    if errors.is_empty() {
        return build::chain(chain, compiled, span).map_err(|error| vec![error]);
    }
    Err(errors)
}

fn compile_call(call: &Call, span: Span, vocabulary: &Vocabulary) -> Result<Typed, Vec<CompileError>> {
    let function = callee(call).map_err(|error| vec![error])?;
    let mut checker = CallChecker::new(call, function);
    let mut operands = Vec::with_capacity(call.arguments.len() + 1);
    let mut errors = Vec::new();
    if let Some(receiver) = &call.receiver {
        match compile(receiver, vocabulary) {
            Ok(receiver) => {
                errors.extend(checker.receiver(receiver.value_type, receiver.span).err());
                operands.push(receiver);
            }
            Err(found) => errors.extend(found),
        }
    }
    errors.extend(checker.arity(span).err());
    for (index, argument) in call.arguments.iter().enumerate() {
        match compile(argument, vocabulary) {
            Ok(argument) => {
                errors.extend(checker.argument(index, argument.value_type, argument.span).err());
                operands.push(argument);
            }
            Err(found) => errors.extend(found),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let unused = excess(function, &mut operands);
    if call.reads_body() && vocabulary.find(TRUNCATED).is_some() {
        for name in [BODY, TRUNCATED] {
            let (code, value_type) = attribute(name, span, vocabulary).map_err(|error| vec![error])?;
            operands.push(Typed { code, value_type, span });
        }
    }
    let mut typed = build::call(function, checker.returns(), operands, call.name_span, span)
        .map_err(|error| vec![error])?;
    if !unused.is_empty() {
        typed.code = Expr::After(unused, Box::new(typed.code));
    }
    Ok(typed)
}

/// Removes surplus operands; returns the operands to evaluate nevertheless.
fn excess(function: Function, operands: &mut Vec<Typed>) -> Vec<Expr> {
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
