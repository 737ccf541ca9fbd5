use prost_types::Timestamp;

use super::{Env, Expr, Kind, Never, text::Text};
use crate::{
    attribute::AttributeValue,
    expression::{error::EvalError, format::timestamp, span::Span},
};
use mixer_adapter_core::value::ValueType;

/// TIMESTAMP
#[derive(Debug)]
pub(crate) enum Instant {}

/// A point in time with the zone it was written in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) instant: Timestamp,
    /// Seconds ahead of UTC, unless it was written as UTC.
    offset: Option<i32>,
}

impl Moment {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (instant, offset) = timestamp::parse(text)?;
        Some(Self { instant, offset })
    }

    /// Where it stands on the time line.
    pub(super) fn nanos(self) -> i128 {
        i128::from(self.instant.seconds) * 1_000_000_000 + i128::from(self.instant.nanos)
    }

    /// Whether both are the same instant written in the same zone: what the original asks for in `<=` and `>=`.
    pub(super) fn identical(self, other: Self) -> bool {
        self.nanos() == other.nanos() && self.offset == other.offset
    }
}

#[derive(Debug)]
pub(crate) enum InstantOp {
    Parse(Expr<Text>, Span),
}

impl Kind for Instant {
    type Constant = Moment;
    type Value<'a> = Moment;
    type Operation = InstantOp;

    fn constant(constant: &Moment) -> Moment {
        *constant
    }

    fn read(value: &AttributeValue, _: u32) -> Option<Moment> {
        match value {
            AttributeValue::Timestamp(instant) => Some(Moment { instant: *instant, offset: None }),
            _ => None,
        }
    }

    fn run<'a>(operation: &'a InstantOp, env: &mut Env<'a, '_>) -> Result<Moment, EvalError> {
        let InstantOp::Parse(text, span) = operation;
        let text = text.value(env)?;
        Moment::parse(&text).ok_or_else(|| {
            let message = format!("`{text}` is not written like `2006-01-02T15:04:05Z`");
            EvalError::conversion(ValueType::Timestamp, *span, message)
        })
    }
}

/// DURATION, in nanoseconds
#[derive(Debug)]
pub(crate) enum Length {}

impl Kind for Length {
    type Constant = i64;
    type Value<'a> = i64;
    type Operation = Never;

    fn constant(constant: &i64) -> i64 {
        *constant
    }

    fn read(value: &AttributeValue, _: u32) -> Option<i64> {
        match value {
            AttributeValue::Int64(nanos) | AttributeValue::Duration(nanos) => Some(*nanos),
            _ => None,
        }
    }

    fn run<'a>(operation: &'a Never, _: &mut Env<'a, '_>) -> Result<i64, EvalError> {
        match *operation {}
    }
}
