//! The string formats that functions parse: DNS names, email addresses, URIs, timestamps and patterns
//! (docs/behaviour/expressions.md#functions).

pub(crate) mod dns;
pub(crate) mod email;
pub(crate) mod pattern;
pub(crate) mod timestamp;
pub(crate) mod uri;

use std::borrow::Cow;

/// Why a text is not in a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct FormatError(Cow<'static, str>);

impl FormatError {
    fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(reason.into())
    }

    /// Adds the text, for the error of an operand.
    fn of(self, text: &str) -> Self {
        Self::new(format!("`{text}`: {self}"))
    }
}
