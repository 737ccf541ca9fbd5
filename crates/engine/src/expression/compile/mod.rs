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
    let mut compiler = Compiler { vocabulary, errors: Vec::new() };
    compiler.part(ast).ok_or(compiler.errors)
}

/// The errors of an expression so far. A part with an error is `None`.
struct Compiler<'v> {
    vocabulary: &'v Vocabulary,
    errors: Vec<CompileError>,
}

fn constant(literal: &Literal, span: Span) -> Typed {
    let (constant, value_type) = match literal {
        Literal::Str(text) => (Operand::Str(Cow::Owned(text.clone())), ValueType::String),
        Literal::Int(number) => (Operand::Int(*number), ValueType::Int64),
        Literal::Double(number) => (Operand::Double(*number), ValueType::Double),
        Literal::Bool(value) => (Operand::Bool(*value), ValueType::Bool),
        Literal::Duration(nanos) => (Operand::Duration(*nanos), ValueType::Duration),
    };
    Typed { code: Expr::Constant(constant), value_type, span }
}

fn attribute(name: &str, span: Span, vocabulary: &Vocabulary) -> Result<Typed, CompileError> {
    const UNKNOWN: CompileErrorKind = CompileErrorKind::UnknownAttribute;
    let Some(declaration) = vocabulary.find(name) else {
        let help = match (entry(name, vocabulary), vocabulary.similar(name)) {
            (Some(entry), _) => format!("write `{entry}` for an entry of the map"),
            (None, Some(similar)) => format!("did you mean `{similar}`?"),
            (None, None) => "declare it in an attribute manifest".to_owned(),
        };
        return Err(CompileError::new(UNKNOWN, span, format!("unknown attribute `{name}`")).help(help));
    };
    let value_type = declaration.value_type;
    if value_type == ValueType::Unspecified {
        let message = format!("attribute `{name}` is declared without a type");
        return Err(CompileError::new(UNKNOWN, span, message));
    }
    Ok(Typed { code: Expr::Attribute(Attribute::new(declaration, span)), value_type, span })
}

/// Returns the entry of a map that a name is meant to be: `request.headers["foo"]` for `request.headers.foo`.
fn entry(name: &str, vocabulary: &Vocabulary) -> Option<String> {
    let mut ends = name.rmatch_indices('.').map(|(end, _)| name.split_at(end));
    let (map, key) = ends.find(|(map, _)| {
        vocabulary.find(map).is_some_and(|known| known.value_type == ValueType::StringMap)
    })?;
    Some(format!("{map}[\"{}\"]", &key[1..]))
}

impl Compiler<'_> {
    fn part(&mut self, ast: &Ast) -> Option<Typed> {
        let compiled = match &ast.node {
            Node::Literal(literal) => Ok(constant(literal, ast.span)),
            Node::Attribute(name) => attribute(name, ast.span, self.vocabulary),
            Node::Chain(chain, operands) => build::chain(*chain, self.operands(*chain, operands)?, ast.span),
            Node::Call(call) => return self.call(call, ast.span),
        };
        self.noted(compiled)
    }

    /// Returns a result, or adds its error.
    fn noted<T>(&mut self, result: Result<T, CompileError>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    /// Compiles the operands of a chain.
    fn operands(&mut self, chain: Chain, operands: &[Ast]) -> Option<Vec<Typed>> {
        let mut compiled: Vec<Typed> = Vec::with_capacity(operands.len());
        for operand in operands {
            let Some(typed) = self.part(operand) else { continue };
            let wanted = match chain {
                Chain::And | Chain::Or => ValueType::Bool,
                Chain::FirstOf | Chain::Add => compiled.first().unwrap_or(&typed).value_type,
            };
            if typed.value_type == wanted {
                compiled.push(typed);
            } else {
                self.errors.push(argument_type(chain.symbol(), wanted, typed.value_type, typed.span));
            }
        }
        (compiled.len() == operands.len()).then_some(compiled)
    }

    fn call(&mut self, call: &Call, span: Span) -> Option<Typed> {
        let function = self.noted(callee(call))?;
        let mut checker = CallChecker::new(call, function);
        let mut operands = Vec::with_capacity(call.arguments.len() + 1);
        let errors = self.errors.len();
        if let Some(receiver) = call.receiver.as_deref().and_then(|receiver| self.part(receiver)) {
            self.noted(checker.receiver(&receiver));
            operands.push(receiver);
        }
        self.noted(checker.arity(span));
        for (index, argument) in call.arguments.iter().enumerate() {
            let Some(argument) = self.part(argument) else { continue };
            self.noted(checker.argument(index, &argument));
            operands.push(argument);
        }
        if self.errors.len() > errors {
            return None;
        }
        let unused = excess(function, &mut operands);
        if call.reads_body() && self.vocabulary.find(TRUNCATED).is_some() {
            for name in [BODY, TRUNCATED] {
                operands.push(self.noted(attribute(name, span, self.vocabulary))?);
            }
        }
        let built = build::call(function, checker.returns(), operands, call.name_span, span);
        let mut typed = self.noted(built)?;
        if !unused.is_empty() {
            typed.code = Expr::After(unused, Box::new(typed.code));
        }
        Some(typed)
    }
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
