use std::{borrow::Cow, sync::Arc};

use regex::Regex;

use super::{
    Env, Expr, Operand, address,
    comparison::Relation,
    field::FieldCall,
    string::{StrFormat, concat, to_lower},
    time::ZonedTimestamp,
};
use crate::expression::{
    error::{EvalError, quoted},
    formats::pattern::{self, PatternError},
    span::Span,
};
use mixer_adapter_core::value::ValueType;

/// A function or operator with its operands.
#[derive(Debug)]
pub(crate) enum Operation {
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Compare(Relation, Expr, Expr),
    /// `==` and `!=` of types whose format defines equality.
    FormatsEqual {
        format: StrFormat,
        negated: bool,
        left: Expr,
        right: Expr,
        span: Span,
    },
    /// `+` of integers, which wraps on overflow, as in Go.
    SumInts(Vec<Expr>),
    SumDoubles(Vec<Expr>),
    Concat(Vec<Expr>),
    /// `map[key]`
    Entry(Expr, Key),
    /// The length of a string in bytes.
    Size(Expr),
    ToLower(Expr),
    /// Unlike `conditional` it evaluates both branches.
    ConditionalString(Expr, Expr, Expr),
    /// A test of two texts: `match(..)`, `startsWith(..)`, `endsWith(..)`
    Test(fn(&str, &str) -> bool, Expr, Expr),
    /// `pattern.matches(text)`
    Matches(Pattern, Expr, Span),
    /// `dnsName(..)`, `email(..)`, `uri(..)`
    Validate(StrFormat, Expr, Span),
    /// `ip(..)`
    ParseAddress(Expr, Span),
    /// `timestamp(..)`
    ParseTimestamp(Expr, Span),
    /// `toInt(..)`
    ParseInt(Expr, Span),
    Field(FieldCall),
}

/// The key of a map entry. Reads of a constant key are recorded without a copy.
#[derive(Debug)]
pub(crate) enum Key {
    Constant(Arc<str>),
    Computed(Expr),
}

/// The pattern of `matches`; a constant one is compiled with the expression.
#[derive(Debug)]
pub(crate) enum Pattern {
    Compiled(Regex),
    /// A constant that is not a regular expression: an evaluation error, as for a computed pattern.
    Invalid(PatternError),
    Computed(Expr),
}

impl Operation {
    /// Returns the value; an error if an operand is missing.
    pub(super) fn value<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<Operand<'a>, EvalError> {
        match self {
            Self::And(_) | Self::Or(_) | Self::Compare(..) => self.bool(env).map(Operand::Bool),
            Self::FormatsEqual { format, negated, left, right, span } => {
                both(left, right, env, |left, right| Ok(format.equal(left, right, *span)? != *negated))
            }
            Self::SumInts(terms) => sum_ints(terms, env).map(Operand::Int),
            Self::SumDoubles(terms) => sum_doubles(terms, env).map(Operand::Double),
            Self::Concat(parts) => concat(parts, env).map(Operand::Str),
            Self::Entry(map, key) => entry(map, key, env).map(Operand::Str),
            Self::Size(text) => text.text(env).map(|text| Operand::Int(text.len() as i64)),
            Self::ToLower(text) => text.text(env).map(|text| Operand::Str(to_lower(text))),
            Self::ConditionalString(condition, yes, no) => conditional_string(condition, yes, no, env),
            Self::Test(test, left, right) => both(left, right, env, |left, right| Ok(test(left, right))),
            Self::Matches(pattern, text, span) => matches(pattern, text, *span, env).map(Operand::Bool),
            Self::Validate(format, text, span) => {
                text.text(env).and_then(|text| format.validate(text, *span)).map(Operand::Str)
            }
            Self::ParseAddress(text, span) => {
                let address = text.text(env).and_then(|text| address::parse(&text, *span));
                address.map(|address| Operand::Address(Cow::Owned(address.to_vec())))
            }
            Self::ParseTimestamp(text, span) => {
                let time = text.text(env).and_then(|text| ZonedTimestamp::parse(&text, *span));
                time.map(Operand::Timestamp)
            }
            Self::ParseInt(text, span) => {
                text.text(env).and_then(|text| parse_int(&text, *span)).map(Operand::Int)
            }
            Self::Field(field) => field.value(env).map(|text| Operand::Str(Cow::Owned(text))),
        }
    }

    /// Returns the value of a BOOL operation: conditions consist of these, and need no [`Operand`] between them.
    pub(super) fn bool<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<bool, EvalError> {
        match self {
            Self::And(terms) => until(terms, false, env),
            Self::Or(terms) => until(terms, true, env),
            Self::Compare(relation, left, right) => compare(*relation, left, right, env),
            _ => self.value(env).and_then(Operand::into_bool),
        }
    }

    /// Returns the value as the left operand of `|`; `None` continues with the right operand.
    ///
    /// A map entry and a field of a request may be missing. Mixer also continues after evaluating an operator (`==`, `<`, `&&`, `||`, `+`, but not
    /// `|` and `[]`) or `size`, a defect that is observable; they are evaluated because they may fail.
    pub(super) fn try_value<'a>(&'a self, env: &mut Env<'a, '_>) -> Result<Option<Operand<'a>>, EvalError> {
        match self {
            Self::Entry(map, key) => Ok(try_entry(map, key, env)?.map(Operand::Str)),
            Self::Field(field) => Ok(field.try_value(env)?.map(|text| Operand::Str(Cow::Owned(text)))),
            Self::ParseInt(text, span) => {
                let text = text.try_value(env)?.map(Operand::into_text).transpose()?;
                text.map(|text| parse_int(&text, *span).map(Operand::Int)).transpose()
            }
            Self::And(_)
            | Self::Or(_)
            | Self::Compare(..)
            | Self::FormatsEqual { .. }
            | Self::SumInts(_)
            | Self::SumDoubles(_)
            | Self::Concat(_)
            | Self::Size(_) => self.value(env).map(|_| None),
            _ => self.value(env).map(Some),
        }
    }
}

/// Evaluates terms until one has the decisive value.
#[inline(never)]
fn until<'a>(terms: &'a [Expr], decisive: bool, env: &mut Env<'a, '_>) -> Result<bool, EvalError> {
    for term in terms {
        if term.bool(env)? == decisive {
            return Ok(decisive);
        }
    }
    Ok(!decisive)
}

// Not inlined, as the others: `Operation::value` would otherwise need a large stack frame.
#[inline(never)]
fn compare<'a>(
    relation: Relation,
    left: &'a Expr,
    right: &'a Expr,
    env: &mut Env<'a, '_>,
) -> Result<bool, EvalError> {
    let left = left.value(env)?;
    match right {
        Expr::Constant(right) => relation.holds(&left, right),
        right => relation.holds(&left, &right.value(env)?),
    }
}

/// Evaluates two texts and tests them.
#[inline(never)]
fn both<'a>(
    left: &'a Expr,
    right: &'a Expr,
    env: &mut Env<'a, '_>,
    test: impl FnOnce(&str, &str) -> Result<bool, EvalError>,
) -> Result<Operand<'a>, EvalError> {
    let left = left.text(env)?;
    test(&left, &right.text(env)?).map(Operand::Bool)
}

#[inline(never)]
fn sum_ints<'a>(terms: &'a [Expr], env: &mut Env<'a, '_>) -> Result<i64, EvalError> {
    terms.iter().try_fold(0i64, |sum, term| Ok(sum.wrapping_add(term.value(env)?.into_int()?)))
}

#[inline(never)]
fn sum_doubles<'a>(terms: &'a [Expr], env: &mut Env<'a, '_>) -> Result<f64, EvalError> {
    // The sum of -0 and -0 is -0.
    terms.iter().try_fold(-0.0, |sum, term| Ok(sum + term.value(env)?.into_double()?))
}

/// Evaluates a map entry; a missing entry is the empty string.
#[inline(never)]
fn entry<'a>(map: &'a Expr, key: &'a Key, env: &mut Env<'a, '_>) -> Result<Cow<'a, str>, EvalError> {
    let map = map.value(env)?.into_map()?;
    let value = match key {
        Key::Constant(key) => map.get(key, env, || Arc::clone(key)),
        Key::Computed(key) => {
            let key = key.text(env)?;
            map.get(&key, env, || Arc::from(&*key))
        }
    };
    Ok(Cow::Borrowed(value.unwrap_or_default()))
}

/// Evaluates a map entry; `None` if the map, the key or the entry is missing.
fn try_entry<'a>(
    map: &'a Expr,
    key: &'a Key,
    env: &mut Env<'a, '_>,
) -> Result<Option<Cow<'a, str>>, EvalError> {
    let Some(map) = map.try_value(env)?.map(Operand::into_map).transpose()? else { return Ok(None) };
    let value = match key {
        Key::Constant(key) => map.get(key, env, || Arc::clone(key)),
        Key::Computed(key) => {
            let Some(key) = key.try_value(env)?.map(Operand::into_text).transpose()? else { return Ok(None) };
            map.get(&key, env, || Arc::from(&*key))
        }
    };
    Ok(value.map(Cow::Borrowed))
}

#[inline(never)]
fn conditional_string<'a>(
    condition: &'a Expr,
    yes: &'a Expr,
    no: &'a Expr,
    env: &mut Env<'a, '_>,
) -> Result<Operand<'a>, EvalError> {
    let condition = condition.bool(env)?;
    let (yes, no) = (yes.value(env)?, no.value(env)?);
    Ok(if condition { yes } else { no })
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
    text: &'a Expr,
    span: Span,
    env: &mut Env<'a, '_>,
) -> Result<bool, EvalError> {
    match pattern {
        Pattern::Compiled(regex) => Ok(regex.is_match(&text.text(env)?)),
        Pattern::Invalid(invalid) => {
            text.text(env)?;
            Err(EvalError::pattern(invalid, span))
        }
        Pattern::Computed(expr) => {
            let (source, text) = (expr.text(env)?, text.text(env)?);
            let regex = pattern::compile_computed(&source);
            Ok(regex.map_err(|invalid| EvalError::pattern(&invalid, span))?.is_match(&text))
        }
    }
}

/// Parses a decimal integer.
pub(crate) fn parse_int(text: &str, span: Span) -> Result<i64, EvalError> {
    text.parse().map_err(|error| {
        EvalError::conversion(ValueType::Int64, span, format!("`{}`: {error}", quoted(text)))
    })
}
