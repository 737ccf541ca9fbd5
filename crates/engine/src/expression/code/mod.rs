//! Compiled expressions: trees of nodes.
//!
//! The compiler has checked the types of all operands, so evaluation checks nothing but the request: an attribute may be missing or
//! of another type.

mod address;
mod comparison;
mod field;
mod operand;
mod operation;
mod string;
mod time;

use std::{borrow::Cow, sync::Arc};

#[cfg(feature = "cel")]
pub(crate) use address::equal as addresses_equal;
pub(crate) use address::parse as parse_address;
pub(crate) use comparison::{Relation, ordered};
pub(crate) use field::FieldCall;
pub(crate) use operand::{MapRef, Operand};
pub(crate) use operation::{Key, Operation, Pattern, glob, parse_int};
pub(crate) use string::StrFormat;
#[cfg(feature = "cel")]
pub(crate) use string::{MAX_CONCATENATED, to_lower};
pub(crate) use time::{ZonedTimestamp, parse_nanos};

use super::{
    error::{EvalError, EvalErrorKind},
    span::Span,
};
use crate::attribute::{AttributeValue, Attributes, Declaration, Reads};
use mixer_adapter_core::value::ValueType;

/// The context of an evaluation.
pub(crate) struct Env<'a, 'r> {
    pub(crate) attributes: Attributes<'a>,
    pub(crate) reads: &'r mut Reads,
    /// The bytes that concatenations have made.
    concatenated: usize,
}

impl<'a, 'r> Env<'a, 'r> {
    pub(crate) fn new(attributes: Attributes<'a>, reads: &'r mut Reads) -> Self {
        Self { attributes, reads, concatenated: 0 }
    }
}

/// A compiled expression.
#[derive(Debug)]
pub(crate) enum Expr {
    Constant(Operand<'static>),
    Attribute(Attribute),
    /// `a | b | c`: all operands but the last, and the last.
    FirstOf(Vec<Expr>, Box<Expr>),
    /// `conditional(condition, a, b)`
    Conditional(Box<[Expr; 3]>),
    /// Surplus arguments of a function, evaluated only for their errors, and the call itself.
    After(Vec<Expr>, Box<Expr>),
    Operation(Box<Operation>),
}

/// An attribute in an expression.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) slot: u32,
    pub(crate) name: Arc<str>,
    pub(crate) declared: ValueType,
    span: Span,
    /// Created once: for many requests it is the outcome of a condition.
    missing: EvalError,
}

impl Attribute {
    pub(crate) fn new(declaration: Declaration<'_>, span: Span) -> Self {
        let name = Arc::clone(declaration.name);
        let missing = EvalError::new(EvalErrorKind::MissingAttribute { name: Arc::clone(&name) }, span);
        Self { slot: declaration.slot, name, declared: declaration.value_type, span, missing }
    }

    #[inline]
    fn typed<'a>(&self, value: &'a AttributeValue) -> Result<Operand<'a>, EvalError> {
        match Operand::of(value, self.declared, self.slot) {
            Some(operand) => Ok(operand),
            None => Err(self.wrong_type(value.kind())),
        }
    }

    #[cold]
    pub(crate) fn wrong_type(&self, actual: &'static str) -> EvalError {
        let kind = EvalErrorKind::WrongType { name: Arc::clone(&self.name), declared: self.declared, actual };
        EvalError::new(kind, self.span)
    }
}

impl Expr {
    pub(crate) fn operation(operation: Operation) -> Self {
        Self::Operation(Box::new(operation))
    }

    /// Returns the value; an error if it is missing.
    #[inline]
    pub(crate) fn value<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<Operand<'a>, EvalError> {
        match self {
            Self::Constant(constant) => Ok(constant.borrowed()),
            Self::Attribute(attribute) => match env.attributes.read(attribute.slot, env.reads) {
                Some(value) => attribute.typed(value),
                None => Err(attribute.missing.clone()),
            },
            Self::Operation(operation) => operation.value(env),
            Self::FirstOf(..) | Self::Conditional(_) | Self::After(..) => self.branch_value(env),
        }
    }

    /// Evaluates the variants with branches. Not inlined into `value`, which must stay small.
    #[inline(never)]
    fn branch_value<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<Operand<'a>, EvalError> {
        match self {
            Self::FirstOf(choices, last) => match first(choices, env)? {
                Some(value) => Ok(value),
                None => last.value(env),
            },
            Self::Conditional(branches) => {
                let [condition, yes, no] = &**branches;
                if condition.bool(env)? { yes.value(env) } else { no.value(env) }
            }
            Self::After(unused, expr) => {
                for unused in unused {
                    unused.value(env)?;
                }
                expr.value(env)
            }
            Self::Constant(_) | Self::Attribute(_) | Self::Operation(_) => self.value(env),
        }
    }

    /// Evaluates the left operand of `|`: an attribute, a map entry or a nested `|` may be missing
    /// (docs/behaviour/expressions.md#attributes-that-are-absent). For operators see [`Operation::try_value`].
    fn try_value<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<Option<Operand<'a>>, EvalError> {
        match self {
            Self::Attribute(attribute) => match env.attributes.read(attribute.slot, env.reads) {
                Some(value) => attribute.typed(value).map(Some),
                None => Ok(None),
            },
            Self::Operation(operation) => operation.try_value(env),
            Self::FirstOf(choices, last) => match first(choices, env)? {
                Some(value) => Ok(Some(value)),
                None => last.try_value(env),
            },
            _ => self.value(env).map(Some),
        }
    }

    /// Returns the value of an expression of a type with string values.
    #[inline]
    fn text<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<Cow<'a, str>, EvalError> {
        self.value(env).and_then(Operand::into_text)
    }

    /// Returns the value of a BOOL expression.
    #[inline]
    pub(crate) fn bool<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<bool, EvalError> {
        match self {
            Self::Operation(operation) => operation.bool(env),
            _ => self.value(env).and_then(Operand::into_bool),
        }
    }
}

fn first<'a>(choices: &'a [Expr], env: &mut Env<'a, '_>) -> Result<Option<Operand<'a>>, EvalError> {
    for choice in choices {
        if let Some(value) = choice.try_value(env)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}
