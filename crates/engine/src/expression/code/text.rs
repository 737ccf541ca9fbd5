use std::{borrow::Cow, sync::Arc};

use super::{Env, Expr, Kind, map::Map, truth::Truth};
use crate::{
    attribute::AttributeValue,
    expression::{
        error::EvalError,
        format::{dns, email, uri},
        span::Span,
    },
};
use mixer_adapter_core::value::ValueType;

/// STRING, DNS_NAME, EMAIL_ADDRESS, URI
#[derive(Debug)]
pub(crate) enum Text {}

#[derive(Debug)]
pub(crate) enum TextOp {
    /// `map[key]`
    Entry(Expr<Map>, Key),
    Concat(Vec<Expr<Text>>),
    ToLower(Expr<Text>),
    /// `dnsName(..)`, `email(..)`, `uri(..)`
    Checked(Form, Expr<Text>, Span),
    /// Unlike `conditional` it evaluates both branches.
    ConditionalString(Expr<Truth>, Expr<Text>, Expr<Text>),
}

/// The key of a map entry. One that is known beforehand can be noted as read without a copy.
#[derive(Debug)]
pub(crate) enum Key {
    Constant(Arc<str>),
    Computed(Expr<Text>),
}

/// A text with a form of its own: which texts it accepts, and which of them are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    DnsName,
    Email,
    Uri,
}

impl Kind for Text {
    type Constant = Arc<str>;
    type Value<'a> = Cow<'a, str>;
    type Operation = TextOp;

    fn constant(constant: &Arc<str>) -> Cow<'_, str> {
        Cow::Borrowed(constant)
    }

    fn read(value: &AttributeValue, _: u32) -> Option<Cow<'_, str>> {
        match value {
            AttributeValue::String(text) => Some(Cow::Borrowed(text)),
            _ => None,
        }
    }

    #[inline]
    fn run<'a>(operation: &'a TextOp, env: &mut Env<'a, '_>) -> Result<Cow<'a, str>, EvalError> {
        match operation {
            TextOp::Entry(map, key) => entry(map, key, env),
            TextOp::Concat(parts) => concat(parts, env),
            TextOp::ToLower(text) => Ok(to_lower(text.value(env)?)),
            TextOp::Checked(form, text, span) => form.check(text.value(env)?, *span),
            TextOp::ConditionalString(condition, yes, no) => {
                let condition = condition.value(env)?;
                let (yes, no) = (yes.value(env)?, no.value(env)?);
                Ok(if condition { yes } else { no })
            }
        }
    }

    fn try_run<'a>(operation: &'a TextOp, env: &mut Env<'a, '_>) -> Result<Option<Cow<'a, str>>, EvalError> {
        match operation {
            TextOp::Entry(map, key) => try_entry(map, key, env),
            TextOp::Concat(_) => Self::run(operation, env).map(|_| None),
            _ => Self::run(operation, env).map(Some),
        }
    }
}

/// A map entry, with the empty text for one that is not there.
#[inline(never)]
fn entry<'a>(map: &'a Expr<Map>, key: &'a Key, env: &mut Env<'a, '_>) -> Result<Cow<'a, str>, EvalError> {
    let map = map.value(env)?;
    let value = match key {
        Key::Constant(key) => map.get(key, env, || Arc::clone(key)),
        Key::Computed(key) => {
            let key = key.value(env)?;
            map.get(&key, env, || Arc::from(&*key))
        }
    };
    Ok(Cow::Borrowed(value.unwrap_or_default()))
}

/// A map entry, if the map, the key and the entry are there.
fn try_entry<'a>(
    map: &'a Expr<Map>,
    key: &'a Key,
    env: &mut Env<'a, '_>,
) -> Result<Option<Cow<'a, str>>, EvalError> {
    let Some(map) = map.try_value(env)? else { return Ok(None) };
    let value = match key {
        Key::Constant(key) => map.get(key, env, || Arc::clone(key)),
        Key::Computed(key) => {
            let Some(key) = key.try_value(env)? else { return Ok(None) };
            map.get(&key, env, || Arc::from(&*key))
        }
    };
    Ok(value.map(Cow::Borrowed))
}

#[inline(never)]
fn concat<'a>(parts: &'a [Expr<Text>], env: &mut Env<'a, '_>) -> Result<Cow<'a, str>, EvalError> {
    let mut text = String::new();
    for part in parts {
        text.push_str(&part.value(env)?);
    }
    Ok(Cow::Owned(text))
}

/// Letter by letter, as in Go: no letter becomes two, and a sigma is the same everywhere.
pub(crate) fn to_lower(text: Cow<'_, str>) -> Cow<'_, str> {
    let lower = |c: char| c.to_lowercase().next().unwrap_or(c);
    if text.chars().all(|c| lower(c) == c) { text } else { Cow::Owned(text.chars().map(lower).collect()) }
}

impl Form {
    /// The text as a value of this form; a DNS name comes back decoded, the others as they are.
    pub(crate) fn check(self, text: Cow<'_, str>, span: Span) -> Result<Cow<'_, str>, EvalError> {
        let checked = match self {
            Form::DnsName => match dns::to_unicode(&text) {
                Ok(Cow::Borrowed(_)) => Ok(None),
                Ok(Cow::Owned(decoded)) => Ok(Some(decoded)),
                Err(why) => Err(why),
            },
            Form::Email => email::parse(&text).map(|_| None),
            Form::Uri => uri::check(&text).map(|()| None),
        };
        match checked {
            Ok(None) => Ok(text),
            Ok(Some(decoded)) => Ok(Cow::Owned(decoded)),
            Err(why) => Err(EvalError::conversion(self.value_type(), span, format!("`{text}`: {why}"))),
        }
    }

    /// Whether two values are one. Both may come from a request, so they need not have the form.
    pub(crate) fn same(self, a: &str, b: &str, span: Span) -> Result<bool, EvalError> {
        match self {
            Form::DnsName => Ok(dns::same(a, b)),
            Form::Email => {
                email::same(a, b).map_err(|why| EvalError::conversion(self.value_type(), span, why))
            }
            Form::Uri => uri::same(a, b).map_err(|why| EvalError::conversion(self.value_type(), span, why)),
        }
    }

    pub(crate) fn value_type(self) -> ValueType {
        match self {
            Form::DnsName => ValueType::DnsName,
            Form::Email => ValueType::EmailAddress,
            Form::Uri => ValueType::Uri,
        }
    }
}
