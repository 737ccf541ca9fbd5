use std::{borrow::Cow, cmp::Ordering};

use regex::Regex;

use super::{
    Address, Bool, Double, Env, Expr, Int, Kind, Str, Timestamp, address, string::StrFormat,
    time::ZonedTimestamp,
};
use crate::{
    attribute::AttributeValue,
    expression::{
        error::EvalError,
        formats::pattern::{self, PatternError},
        span::Span,
    },
};

#[derive(Debug)]
pub(crate) enum BoolOp {
    And(Vec<Expr<Bool>>),
    Or(Vec<Expr<Bool>>),
    CompareStrs(Comparison<Str>),
    CompareInts(Comparison<Int>),
    CompareDoubles(Comparison<Double>),
    CompareBools(Comparison<Bool>),
    CompareTimestamps(Comparison<Timestamp>),
    CompareAddresses(Comparison<Address>),
    /// `==` and `!=` of types whose format defines equality.
    FormatsEqual {
        format: StrFormat,
        negated: bool,
        left: Expr<Str>,
        right: Expr<Str>,
        span: Span,
    },
    /// `match(text, pattern)`
    Glob(Expr<Str>, Expr<Str>),
    /// `pattern.matches(text)`
    Matches(Pattern, Expr<Str>, Span),
    StartsWith(Expr<Str>, Expr<Str>),
    EndsWith(Expr<Str>, Expr<Str>),
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
    /// The relation with its operands exchanged.
    pub(crate) fn reversed(self) -> Self {
        match self {
            Relation::Equal | Relation::NotEqual => self,
            Relation::Less => Relation::Greater,
            Relation::LessOrEqual => Relation::GreaterOrEqual,
            Relation::Greater => Relation::Less,
            Relation::GreaterOrEqual => Relation::LessOrEqual,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Comparison<K: Kind> {
    pub(crate) relation: Relation,
    pub(crate) left: Expr<K>,
    pub(crate) right: Expr<K>,
}

/// The pattern of `matches`; a constant one is compiled with the expression.
#[derive(Debug)]
pub(crate) enum Pattern {
    Compiled(Regex),
    /// A constant that is not a regular expression: an evaluation error, as for a computed pattern.
    Invalid(PatternError),
    Computed(Expr<Str>),
}

impl Kind for Bool {
    type Constant = bool;
    type Value<'a> = bool;
    type Operation = BoolOp;

    fn constant(constant: &bool) -> bool {
        *constant
    }

    fn read(value: &AttributeValue, _: u32) -> Option<bool> {
        match value {
            AttributeValue::Bool(value) => Some(*value),
            _ => None,
        }
    }

    #[inline]
    fn run<'a>(operation: &'a BoolOp, env: &mut Env<'a, '_>) -> Result<bool, EvalError> {
        match operation {
            BoolOp::And(terms) => until(terms, false, env),
            BoolOp::Or(terms) => until(terms, true, env),
            BoolOp::CompareStrs(comparison) => comparison.run(env),
            BoolOp::CompareInts(comparison) => comparison.run(env),
            BoolOp::CompareDoubles(comparison) => comparison.run(env),
            BoolOp::CompareBools(comparison) => comparison.run(env),
            BoolOp::CompareTimestamps(comparison) => comparison.run(env),
            BoolOp::CompareAddresses(comparison) => comparison.run(env),
            BoolOp::FormatsEqual { format, negated, left, right, span } => {
                both(left, right, env, |left, right| Ok(format.equal(left, right, *span)? != *negated))
            }
            BoolOp::Glob(text, pattern) => both(text, pattern, env, |text, pattern| Ok(glob(text, pattern))),
            BoolOp::Matches(pattern, text, span) => matches(pattern, text, *span, env),
            BoolOp::StartsWith(text, prefix) => {
                both(text, prefix, env, |text, prefix| Ok(text.starts_with(prefix)))
            }
            BoolOp::EndsWith(text, suffix) => {
                both(text, suffix, env, |text, suffix| Ok(text.ends_with(suffix)))
            }
        }
    }

    fn try_run<'a>(operation: &'a BoolOp, env: &mut Env<'a, '_>) -> Result<Option<bool>, EvalError> {
        let value = Self::run(operation, env)?;
        let is_function = matches!(
            operation,
            BoolOp::Glob(..) | BoolOp::Matches(..) | BoolOp::StartsWith(..) | BoolOp::EndsWith(..)
        );
        Ok(is_function.then_some(value))
    }
}

/// Evaluates two operands and tests them. Not inlined: `run` would otherwise need a large stack frame.
#[inline(never)]
fn both<'a>(
    left: &'a Expr<Str>,
    right: &'a Expr<Str>,
    env: &mut Env<'a, '_>,
    test: impl FnOnce(&str, &str) -> Result<bool, EvalError>,
) -> Result<bool, EvalError> {
    let left = left.value(env)?;
    test(&left, &right.value(env)?)
}

/// Evaluates terms until one has the decisive value.
#[inline(never)]
fn until<'a>(terms: &'a [Expr<Bool>], decisive: bool, env: &mut Env<'a, '_>) -> Result<bool, EvalError> {
    for term in terms {
        if term.value(env)? == decisive {
            return Ok(decisive);
        }
    }
    Ok(!decisive)
}

/// Matches a pattern with at most one wildcard: a `*` at its end, or else at its start.
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
    text: &'a Expr<Str>,
    span: Span,
    env: &mut Env<'a, '_>,
) -> Result<bool, EvalError> {
    match pattern {
        Pattern::Compiled(regex) => Ok(regex.is_match(&text.value(env)?)),
        Pattern::Invalid(invalid) => {
            text.value(env)?;
            Err(EvalError::pattern(invalid, span))
        }
        Pattern::Computed(expr) => {
            let (source, text) = (expr.value(env)?, text.value(env)?);
            let regex = pattern::compile_computed(&source);
            Ok(regex.map_err(|invalid| EvalError::pattern(&invalid, span))?.is_match(&text))
        }
    }
}

/// Kinds whose values can be compared.
pub(crate) trait Comparable: Kind {
    fn test(relation: Relation, left: &Self::Value<'_>, right: &Self::Value<'_>) -> bool;
}

impl<K: Comparable> Comparison<K> {
    #[inline(never)]
    fn run<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<bool, EvalError> {
        let left = self.left.value(env)?;
        let right = self.right.value(env)?;
        Ok(K::test(self.relation, &left, &right))
    }
}

pub(crate) fn ordered<T: PartialOrd + ?Sized>(relation: Relation, left: &T, right: &T) -> bool {
    match relation {
        Relation::Equal => left == right,
        Relation::NotEqual => left != right,
        Relation::Less => left < right,
        Relation::LessOrEqual => left <= right,
        Relation::Greater => left > right,
        Relation::GreaterOrEqual => left >= right,
    }
}

/// Compares kinds without an order; the compiler rejects other relations on them.
fn equality(relation: Relation, equal: bool) -> bool {
    equal != (relation == Relation::NotEqual)
}

impl Comparable for Str {
    fn test(relation: Relation, left: &Cow<'_, str>, right: &Cow<'_, str>) -> bool {
        ordered::<str>(relation, left, right)
    }
}

impl Comparable for Int {
    fn test(relation: Relation, left: &i64, right: &i64) -> bool {
        ordered(relation, left, right)
    }
}

impl Comparable for Double {
    /// Equality compares bits: a NaN equals itself, and -0 is not 0 (docs/behaviour/expressions.md#equality).
    fn test(relation: Relation, left: &f64, right: &f64) -> bool {
        match relation {
            Relation::Equal | Relation::NotEqual => equality(relation, left.to_bits() == right.to_bits()),
            _ => ordered(relation, left, right),
        }
    }
}

impl Comparable for Bool {
    fn test(relation: Relation, left: &bool, right: &bool) -> bool {
        equality(relation, left == right)
    }
}

impl Comparable for Address {
    fn test(relation: Relation, left: &Cow<'_, [u8]>, right: &Cow<'_, [u8]>) -> bool {
        equality(relation, address::equal(left, right))
    }
}

impl Comparable for Timestamp {
    fn test(relation: Relation, left: &ZonedTimestamp, right: &ZonedTimestamp) -> bool {
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
