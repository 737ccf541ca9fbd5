use std::{borrow::Cow, cmp::Ordering};

use regex::Regex;

use super::{
    Env, Expr, Kind,
    address::{self, Address},
    number::{Double, Int},
    text::{Form, Text},
    time::{Instant, Moment},
};
use crate::{
    attribute::AttributeValue,
    expression::{
        error::{EvalError, EvalErrorKind},
        format::pattern,
        span::Span,
    },
};

/// BOOL
#[derive(Debug)]
pub(crate) enum Truth {}

#[derive(Debug)]
pub(crate) enum TruthOp {
    And(Vec<Expr<Truth>>),
    Or(Vec<Expr<Truth>>),
    Texts(Comparison<Text>),
    Ints(Comparison<Int>),
    Doubles(Comparison<Double>),
    Truths(Comparison<Truth>),
    Instants(Comparison<Instant>),
    Addresses(Comparison<Address>),
    /// `==` and `!=` of texts that are one when their form says so.
    SameForm {
        form: Form,
        negated: bool,
        left: Expr<Text>,
        right: Expr<Text>,
        span: Span,
    },
    /// `match(text, pattern)`
    Glob(Expr<Text>, Expr<Text>),
    /// `pattern.matches(text)`
    Matches(Pattern, Expr<Text>, Span),
    StartsWith(Expr<Text>, Expr<Text>),
    EndsWith(Expr<Text>, Expr<Text>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Relation {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Relation::Equal => "==",
            Relation::NotEqual => "!=",
            Relation::Less => "<",
            Relation::LessOrEqual => "<=",
            Relation::Greater => ">",
            Relation::GreaterOrEqual => ">=",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Comparison<K: Kind> {
    pub(crate) relation: Relation,
    pub(crate) left: Expr<K>,
    pub(crate) right: Expr<K>,
}

/// A regular expression, compiled when the expression is, if it is known then.
#[derive(Debug)]
pub(crate) enum Pattern {
    Ready(Regex),
    /// It is no regular expression. That is an error of the evaluation, as it is for a computed one.
    Broken(String),
    Computed(Expr<Text>),
}

impl Kind for Truth {
    type Constant = bool;
    type Value<'a> = bool;
    type Operation = TruthOp;

    fn constant(constant: &bool) -> bool {
        *constant
    }

    fn read(value: &AttributeValue, _: u32) -> Option<bool> {
        match value {
            AttributeValue::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    #[inline]
    fn run<'a>(operation: &'a TruthOp, env: &mut Env<'a, '_>) -> Result<bool, EvalError> {
        match operation {
            TruthOp::And(terms) => until(terms, false, env),
            TruthOp::Or(terms) => until(terms, true, env),
            TruthOp::Texts(comparison) => comparison.run(env),
            TruthOp::Ints(comparison) => comparison.run(env),
            TruthOp::Doubles(comparison) => comparison.run(env),
            TruthOp::Truths(comparison) => comparison.run(env),
            TruthOp::Instants(comparison) => comparison.run(env),
            TruthOp::Addresses(comparison) => comparison.run(env),
            TruthOp::SameForm { form, negated, left, right, span } => {
                both(left, right, env, |left, right| Ok(form.same(left, right, *span)? != *negated))
            }
            TruthOp::Glob(text, pattern) => both(text, pattern, env, |text, pattern| Ok(glob(text, pattern))),
            TruthOp::Matches(pattern, text, span) => matches(pattern, text, *span, env),
            TruthOp::StartsWith(text, prefix) => {
                both(text, prefix, env, |text, prefix| Ok(text.starts_with(prefix)))
            }
            TruthOp::EndsWith(text, suffix) => {
                both(text, suffix, env, |text, suffix| Ok(text.ends_with(suffix)))
            }
        }
    }

    fn try_run<'a>(operation: &'a TruthOp, env: &mut Env<'a, '_>) -> Result<Option<bool>, EvalError> {
        let value = Self::run(operation, env)?;
        let is_function = matches!(
            operation,
            TruthOp::Glob(..) | TruthOp::Matches(..) | TruthOp::StartsWith(..) | TruthOp::EndsWith(..)
        );
        Ok(is_function.then_some(value))
    }
}

/// Tests two texts. A function of its own for each operation, so that the choice between them needs no stack.
#[inline(never)]
fn both<'a>(
    left: &'a Expr<Text>,
    right: &'a Expr<Text>,
    env: &mut Env<'a, '_>,
    test: impl FnOnce(&str, &str) -> Result<bool, EvalError>,
) -> Result<bool, EvalError> {
    let left = left.value(env)?;
    test(&left, &right.value(env)?)
}

/// Evaluates term by term until one decides.
#[inline(never)]
fn until<'a>(terms: &'a [Expr<Truth>], decisive: bool, env: &mut Env<'a, '_>) -> Result<bool, EvalError> {
    for term in terms {
        if term.value(env)? == decisive {
            return Ok(decisive);
        }
    }
    Ok(!decisive)
}

/// One `*`, at the end or else at the start, stands for anything.
pub(crate) fn glob(text: &str, pattern: &str) -> bool {
    match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(prefix), _) => text.starts_with(prefix),
        (None, Some(suffix)) => text.ends_with(suffix),
        (None, None) => text == pattern,
    }
}

#[inline(never)]
fn matches<'a>(
    pattern: &'a Pattern,
    text: &'a Expr<Text>,
    span: Span,
    env: &mut Env<'a, '_>,
) -> Result<bool, EvalError> {
    let error = |message: String| EvalError::new(EvalErrorKind::Pattern { message: message.into() }, span);
    match pattern {
        Pattern::Ready(regex) => Ok(regex.is_match(&text.value(env)?)),
        Pattern::Broken(message) => {
            text.value(env)?;
            Err(error(message.clone()))
        }
        Pattern::Computed(expr) => {
            let (source, text) = (expr.value(env)?, text.value(env)?);
            Ok(pattern::compile(&source).map_err(error)?.is_match(&text))
        }
    }
}

/// Kinds whose values can be compared.
pub(crate) trait Compared: Kind {
    fn test(relation: Relation, left: &Self::Value<'_>, right: &Self::Value<'_>) -> bool;
}

impl<K: Compared> Comparison<K> {
    #[inline(never)]
    fn run<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<bool, EvalError> {
        let left = self.left.value(env)?;
        let right = self.right.value(env)?;
        Ok(K::test(self.relation, &left, &right))
    }
}

fn ordered<T: PartialOrd + ?Sized>(relation: Relation, left: &T, right: &T) -> bool {
    match relation {
        Relation::Equal => left == right,
        Relation::NotEqual => left != right,
        Relation::Less => left < right,
        Relation::LessOrEqual => left <= right,
        Relation::Greater => left > right,
        Relation::GreaterOrEqual => left >= right,
    }
}

/// For kinds that know equality only; the compiler makes no other comparison of them.
fn equal(relation: Relation, same: bool) -> bool {
    same != (relation == Relation::NotEqual)
}

impl Compared for Text {
    fn test(relation: Relation, left: &Cow<'_, str>, right: &Cow<'_, str>) -> bool {
        ordered::<str>(relation, left, right)
    }
}

impl Compared for Int {
    fn test(relation: Relation, left: &i64, right: &i64) -> bool {
        ordered(relation, left, right)
    }
}

impl Compared for Double {
    /// Equality compares bits: a NaN equals itself, and -0 is not 0 (docs/behaviour/expressions.md#equality).
    fn test(relation: Relation, left: &f64, right: &f64) -> bool {
        match relation {
            Relation::Equal | Relation::NotEqual => equal(relation, left.to_bits() == right.to_bits()),
            _ => ordered(relation, left, right),
        }
    }
}

impl Compared for Truth {
    fn test(relation: Relation, left: &bool, right: &bool) -> bool {
        equal(relation, left == right)
    }
}

impl Compared for Address {
    fn test(relation: Relation, left: &Cow<'_, [u8]>, right: &Cow<'_, [u8]>) -> bool {
        equal(relation, address::same(left, right))
    }
}

impl Compared for Instant {
    fn test(relation: Relation, left: &Moment, right: &Moment) -> bool {
        let ordering = left.nanos().cmp(&right.nanos());
        match relation {
            Relation::Equal => ordering == Ordering::Equal,
            Relation::NotEqual => ordering != Ordering::Equal,
            Relation::Less => ordering == Ordering::Less,
            Relation::Greater => ordering == Ordering::Greater,
            Relation::LessOrEqual => ordering == Ordering::Less || left.identical(*right),
            Relation::GreaterOrEqual => ordering == Ordering::Greater || left.identical(*right),
        }
    }
}
