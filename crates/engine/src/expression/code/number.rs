use super::{Double, Env, Expr, Int, Kind, Str};
use crate::{
    attribute::AttributeValue,
    expression::{
        error::{EvalError, quoted},
        span::Span,
    },
};
use mixer_adapter_core::value::ValueType;

#[derive(Debug)]
pub(crate) enum IntOp {
    /// Wraps on overflow, as in Go.
    Sum(Vec<Expr<Int>>),
    /// The length of a string in bytes.
    Size(Expr<Str>),
    /// `toInt(..)`
    Parse(Expr<Str>, Span),
}

impl Kind for Int {
    type Constant = i64;
    type Value<'a> = i64;
    type Operation = IntOp;

    fn constant(constant: &i64) -> i64 {
        *constant
    }

    fn read(value: &AttributeValue, _: u32) -> Option<i64> {
        match value {
            AttributeValue::Int64(number) | AttributeValue::Duration(number) => Some(*number),
            _ => None,
        }
    }

    fn run<'a>(operation: &'a IntOp, env: &mut Env<'a, '_>) -> Result<i64, EvalError> {
        match operation {
            IntOp::Sum(terms) => {
                terms.iter().try_fold(0i64, |sum, term| Ok(sum.wrapping_add(term.value(env)?)))
            }
            IntOp::Size(text) => Ok(text.value(env)?.len() as i64),
            IntOp::Parse(text, span) => parse(&text.value(env)?, *span),
        }
    }

    fn try_run<'a>(operation: &'a IntOp, env: &mut Env<'a, '_>) -> Result<Option<i64>, EvalError> {
        if let IntOp::Parse(text, span) = operation {
            return text.try_value(env)?.map(|text| parse(&text, *span)).transpose();
        }
        Self::run(operation, env).map(|_| None)
    }
}

/// Parses a decimal integer.
pub(crate) fn parse(text: &str, span: Span) -> Result<i64, EvalError> {
    text.parse().map_err(|error| {
        EvalError::conversion(ValueType::Int64, span, format!("`{}`: {error}", quoted(text)))
    })
}

#[derive(Debug)]
pub(crate) enum DoubleOp {
    Sum(Expr<Double>, Vec<Expr<Double>>),
}

impl Kind for Double {
    type Constant = f64;
    type Value<'a> = f64;
    type Operation = DoubleOp;

    fn constant(constant: &f64) -> f64 {
        *constant
    }

    fn read(value: &AttributeValue, _: u32) -> Option<f64> {
        match value {
            AttributeValue::Double(number) => Some(*number),
            _ => None,
        }
    }

    fn run<'a>(operation: &'a DoubleOp, env: &mut Env<'a, '_>) -> Result<f64, EvalError> {
        let DoubleOp::Sum(first, others) = operation;
        let first = first.value(env)?;
        others.iter().try_fold(first, |sum, term| Ok(sum + term.value(env)?))
    }

    fn try_run<'a>(operation: &'a DoubleOp, env: &mut Env<'a, '_>) -> Result<Option<f64>, EvalError> {
        Self::run(operation, env).map(|_| None)
    }
}
