use super::{Duration, Env, Expr, Kind, Never, Str, Timestamp};
use crate::{
    attribute::AttributeValue,
    expression::{error::EvalError, formats::timestamp, span::Span},
};
use mixer_adapter_core::value::{ValueType, parse_duration};

/// A timestamp with the time zone it was written in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZonedTimestamp {
    pub(crate) timestamp: prost_types::Timestamp,
    /// Seconds east of UTC; `None` if it was written with `Z`.
    offset: Option<i32>,
}

impl ZonedTimestamp {
    pub(crate) fn parse(text: &str, span: Span) -> Result<Self, EvalError> {
        let parsed = timestamp::parse(text).map(|(timestamp, offset)| Self { timestamp, offset });
        parsed.ok_or_else(|| Self::invalid(text, span))
    }

    /// The error for a text that is not a time.
    pub(crate) fn invalid(text: &str, span: Span) -> EvalError {
        let message = format!("`{text}` is not an RFC 3339 time; write it like `2006-01-02T15:04:05Z`");
        EvalError::conversion(ValueType::Timestamp, span, message)
    }

    /// Returns the nanoseconds since the Unix epoch.
    pub(super) fn nanos(self) -> i128 {
        i128::from(self.timestamp.seconds) * 1_000_000_000 + i128::from(self.timestamp.nanos)
    }

    /// Returns whether both are the same instant in the same zone, which is how Mixer decides equality in `<=` and
    /// `>=`.
    pub(super) fn identical(self, other: Self) -> bool {
        self.nanos() == other.nanos() && self.offset == other.offset
    }
}

#[derive(Debug)]
pub(crate) enum TimestampOp {
    Parse(Expr<Str>, Span),
}

impl Kind for Timestamp {
    type Constant = ZonedTimestamp;
    type Value<'a> = ZonedTimestamp;
    type Operation = TimestampOp;

    fn constant(constant: &ZonedTimestamp) -> ZonedTimestamp {
        *constant
    }

    fn read(value: &AttributeValue, _: u32) -> Option<ZonedTimestamp> {
        match value {
            AttributeValue::Timestamp(timestamp) => {
                Some(ZonedTimestamp { timestamp: *timestamp, offset: None })
            }
            _ => None,
        }
    }

    fn run<'a>(operation: &'a TimestampOp, env: &mut Env<'a, '_>) -> Result<ZonedTimestamp, EvalError> {
        let TimestampOp::Parse(text, span) = operation;
        ZonedTimestamp::parse(&text.value(env)?, *span)
    }
}

/// Parses a duration into nanoseconds.
pub(crate) fn parse_nanos(text: &str, span: Span) -> Result<i64, EvalError> {
    parse_duration(text).ok_or_else(|| {
        let message = format!("write it like `300ms`, `5s` or `1m30s`, not `{text}`");
        EvalError::conversion(ValueType::Duration, span, message)
    })
}

impl Kind for Duration {
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
