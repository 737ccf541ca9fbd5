//! COMPAT: translates Mixer's own syntax to CEL. `|` becomes `pick` and a string that parses as a duration becomes a
//! duration; everything else has the semantics of CEL (docs/behaviour/expressions.md#cel-and-compat).

use std::collections::HashMap;

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, SelectExpr};

use crate::expression::{
    error::{CompileError, CompileErrorKind},
    span::Span,
    syntax::{Ast, Call, Chain, Literal, Node},
};
use mixer_adapter_core::value::format_duration;

pub(crate) struct Translator<'s> {
    pub(crate) source: &'s str,
    pub(crate) spans: HashMap<u64, Span>,
}

impl Translator<'_> {
    pub(crate) fn translate(&mut self, ast: &Ast) -> Result<IdedExpr, CompileError> {
        let expr = match &ast.node {
            Node::Literal(literal) => self.literal(literal, ast.span),
            Node::Attribute(name) => return Ok(self.name(name, ast.span)),
            Node::Chain(chain, operands) => {
                let operands =
                    operands.iter().map(|operand| self.translate(operand)).collect::<Result<_, _>>()?;
                return Ok(self.chain(*chain, operands, ast.span));
            }
            Node::Call(call) => self.call(call)?,
        };
        Ok(self.node(expr, ast.span))
    }

    fn node(&mut self, expr: Expr, span: Span) -> IdedExpr {
        let id = self.spans.len() as u64 + 1;
        self.spans.insert(id, span);
        IdedExpr { id, expr }
    }

    fn literal(&mut self, literal: &Literal, span: Span) -> Expr {
        match literal {
            Literal::Str(text) => string(text),
            Literal::Int(number) => Expr::Literal(LiteralValue::Int((*number).into())),
            Literal::Double(number) => Expr::Literal(LiteralValue::Double((*number).into())),
            Literal::Bool(value) => {
                // CEL has these keywords in lower case only.
                let word = span.of(self.source);
                if word.contains(char::is_uppercase) {
                    return Expr::Ident(word.to_owned());
                }
                Expr::Literal(LiteralValue::Boolean((*value).into()))
            }
            Literal::Duration(nanos) => {
                let text = self.node(string(&format_duration(i128::from(*nanos))), span);
                function("duration", vec![text])
            }
        }
    }

    fn name(&mut self, name: &str, span: Span) -> IdedExpr {
        if name == "null" {
            return self.node(Expr::Literal(LiteralValue::Null), span);
        }
        let mut segments = name.split('.');
        let first = segments.next().unwrap_or_default();
        let mut node = self.node(Expr::Ident(first.to_owned()), span);
        for field in segments {
            let select = SelectExpr { operand: Box::new(node), field: field.to_owned(), test: false };
            node = self.node(Expr::Select(select), span);
        }
        node
    }

    fn chain(&mut self, chain: Chain, mut operands: Vec<IdedExpr>, span: Span) -> IdedExpr {
        let name = match chain {
            Chain::Or => "_||_",
            Chain::And => "_&&_",
            Chain::Add => "_+_",
            Chain::FirstOf => return self.node(function("pick", operands), span),
        };
        if chain == Chain::Add {
            let sum = operands.into_iter();
            let sum = sum.reduce(|left, right| self.node(function(name, vec![left, right]), span));
            return sum.unwrap_or_default();
        }
        // A balanced tree, so that a long chain is not nested deeply.
        match operands.len() {
            0 | 1 => operands.pop().unwrap_or_default(),
            length => {
                let right = operands.split_off(length / 2);
                let (left, right) = (self.chain(chain, operands, span), self.chain(chain, right, span));
                self.node(function(name, vec![left, right]), span)
            }
        }
    }

    fn call(&mut self, call: &Call) -> Result<Expr, CompileError> {
        let name = match (call.name.as_str(), call.arguments.len()) {
            ("-", 1) => "-_",
            ("!", 1) => "!_",
            ("-", 2) => "_-_",
            ("*", 2) => "_*_",
            ("/", 2) => "_/_",
            ("%", 2) => "_%_",
            ("==", 2) => "_==_",
            ("!=", 2) => "_!=_",
            ("<", 2) => "_<_",
            ("<=", 2) => "_<=_",
            (">", 2) => "_>_",
            (">=", 2) => "_>=_",
            ("[]", 2) => "_[_]",
            (name, _) if name.starts_with(char::is_alphabetic) => name,
            (operator, _) => {
                let message = format!("CEL has no operator `{operator}`");
                return Err(CompileError::new(CompileErrorKind::UnknownFunction, call.name_span, message));
            }
        };
        let target = call.receiver.as_ref().map(|receiver| self.translate(receiver)).transpose()?;
        let args =
            call.arguments.iter().map(|argument| self.translate(argument)).collect::<Result<_, _>>()?;
        Ok(Expr::Call(CallExpr { func_name: name.to_owned(), target: target.map(Box::new), args }))
    }
}

fn string(text: &str) -> Expr {
    Expr::Literal(LiteralValue::String(text.to_owned().into()))
}

fn function(name: &str, args: Vec<IdedExpr>) -> Expr {
    Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args })
}
