use crate::expression::{error::EvalError, formats::timestamp, span::Span};
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

impl From<prost_types::Timestamp> for ZonedTimestamp {
    fn from(timestamp: prost_types::Timestamp) -> Self {
        Self { timestamp, offset: None }
    }
}

/// Parses a duration into nanoseconds.
pub(crate) fn parse_nanos(text: &str, span: Span) -> Result<i64, EvalError> {
    parse_duration(text).ok_or_else(|| {
        let message = format!("write it like `300ms`, `5s` or `1m30s`, not `{text}`");
        EvalError::conversion(ValueType::Duration, span, message)
    })
}
