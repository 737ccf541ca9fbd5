use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use super::{Env, ZonedTimestamp};
use crate::{
    attribute::{AttributeValue, StringMap},
    expression::{
        Evaluated,
        error::{EvalError, EvalErrorKind},
        span::Span,
    },
};
use mixer_adapter_core::value::ValueType;

/// A value at evaluation, borrowed from the expression or the request where possible.
#[derive(Clone, Debug)]
pub(crate) enum Operand<'a> {
    /// STRING, DNS_NAME, EMAIL_ADDRESS, URI
    Str(Cow<'a, str>),
    /// INT64
    Int(i64),
    /// DOUBLE
    Double(f64),
    /// BOOL
    Bool(bool),
    /// TIMESTAMP
    Timestamp(ZonedTimestamp),
    /// DURATION, in nanoseconds
    Duration(i64),
    /// IP_ADDRESS, as bytes; a request may have any length.
    Address(Cow<'a, [u8]>),
    /// STRING_MAP
    Map(MapRef<'a>),
}

impl<'a> Operand<'a> {
    /// Converts the value of an attribute; `None` if it is not of the declared type.
    #[inline]
    pub(super) fn of(value: &'a AttributeValue, declared: ValueType, slot: u32) -> Option<Self> {
        use ValueType::{DnsName, EmailAddress, Uri};
        Some(match (value, declared) {
            (AttributeValue::String(text), ValueType::String | DnsName | EmailAddress | Uri) => {
                Self::Str(Cow::Borrowed(text))
            }
            (AttributeValue::Int64(number) | AttributeValue::Duration(number), ValueType::Int64) => {
                Self::Int(*number)
            }
            (AttributeValue::Int64(nanos) | AttributeValue::Duration(nanos), ValueType::Duration) => {
                Self::Duration(*nanos)
            }
            (AttributeValue::Double(number), ValueType::Double) => Self::Double(*number),
            (AttributeValue::Bool(value), ValueType::Bool) => Self::Bool(*value),
            (AttributeValue::Timestamp(time), ValueType::Timestamp) => Self::Timestamp((*time).into()),
            (AttributeValue::Bytes(bytes), ValueType::IpAddress) => Self::Address(Cow::Borrowed(bytes)),
            (AttributeValue::StringMap(entries), ValueType::StringMap) => {
                Self::Map(MapRef { entries, slot: Some(slot) })
            }
            _ => return None,
        })
    }

    /// Returns a constant without a copy of its content.
    #[inline]
    pub(crate) fn borrowed(&self) -> Operand<'_> {
        match self {
            Self::Str(text) => Operand::Str(Cow::Borrowed(text)),
            Self::Address(address) => Operand::Address(Cow::Borrowed(address)),
            other => other.clone(),
        }
    }

    /// Returns the text of an operand of a type with string values.
    #[inline]
    pub(super) fn into_text(self) -> Result<Cow<'a, str>, EvalError> {
        if let Self::Str(text) = self { Ok(text) } else { Err(self.misfit()) }
    }

    #[inline]
    pub(super) fn into_bool(self) -> Result<bool, EvalError> {
        if let Self::Bool(value) = self { Ok(value) } else { Err(self.misfit()) }
    }

    #[inline]
    pub(super) fn into_int(self) -> Result<i64, EvalError> {
        if let Self::Int(number) = self { Ok(number) } else { Err(self.misfit()) }
    }

    #[inline]
    pub(super) fn into_double(self) -> Result<f64, EvalError> {
        if let Self::Double(number) = self { Ok(number) } else { Err(self.misfit()) }
    }

    #[inline]
    pub(super) fn into_map(self) -> Result<MapRef<'a>, EvalError> {
        if let Self::Map(map) = self { Ok(map) } else { Err(self.misfit()) }
    }

    /// The error of an operand that its operation does not take, so that no condition holds or fails by a value it does not have.
    #[cold]
    pub(super) fn misfit(&self) -> EvalError {
        let actual = match self {
            Self::Str(_) => "a text",
            Self::Int(_) => "INT64",
            Self::Double(_) => "DOUBLE",
            Self::Bool(_) => "BOOL",
            Self::Timestamp(_) => "TIMESTAMP",
            Self::Duration(_) => "DURATION",
            Self::Address(_) => "IP_ADDRESS",
            Self::Map(_) => "STRING_MAP",
        };
        EvalError::new(EvalErrorKind::Operand { actual }, Span::default())
    }

    /// Returns the value of an expression of a type.
    pub(crate) fn into_evaluated(self, value_type: ValueType) -> Evaluated<'a> {
        match self {
            Self::Str(text) => Evaluated::string(value_type, text),
            Self::Int(number) => Evaluated::Int64(number),
            Self::Double(number) => Evaluated::Double(number),
            Self::Bool(value) => Evaluated::Bool(value),
            Self::Timestamp(time) => Evaluated::Timestamp(time.timestamp),
            Self::Duration(nanos) => Evaluated::Duration(nanos),
            Self::Address(address) => Evaluated::IpAddress(address),
            Self::Map(map) => Evaluated::StringMap(Cow::Borrowed(map.entries)),
        }
    }
}

/// A map, and the slot of its attribute, under which reads of its keys are recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapRef<'a> {
    entries: &'a StringMap,
    slot: Option<u32>,
}

static EMPTY: LazyLock<StringMap> = LazyLock::new(StringMap::default);

impl<'a> MapRef<'a> {
    /// The value of `emptyStringMap()`.
    pub(crate) fn empty() -> Self {
        Self { entries: &EMPTY, slot: None }
    }

    pub(super) fn get(
        self,
        key: &str,
        env: &mut Env<'_, '_>,
        new_key: impl FnOnce() -> Arc<str>,
    ) -> Option<&'a str> {
        let value = self.entries.get(key);
        if let Some(slot) = self.slot {
            env.reads.record_by_key(slot);
            env.reads.record_key(slot, key, value.is_some(), new_key);
        }
        value.map(|value| &**value)
    }
}
