use std::error::Error;

use super::{ConfigErrors, Violation};
use crate::proto::{Any, google::rpc::LocalizedMessage};

/// The reason of a denial or a failure: a code of `google.rpc.Code` other than OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Code {
    /// CANCELLED
    Cancelled = 1,
    /// UNKNOWN
    Unknown = 2,
    /// INVALID_ARGUMENT
    InvalidArgument = 3,
    /// DEADLINE_EXCEEDED
    DeadlineExceeded = 4,
    /// NOT_FOUND
    NotFound = 5,
    /// ALREADY_EXISTS
    AlreadyExists = 6,
    /// PERMISSION_DENIED
    PermissionDenied = 7,
    /// RESOURCE_EXHAUSTED
    ResourceExhausted = 8,
    /// FAILED_PRECONDITION
    FailedPrecondition = 9,
    /// ABORTED
    Aborted = 10,
    /// OUT_OF_RANGE
    OutOfRange = 11,
    /// UNIMPLEMENTED
    Unimplemented = 12,
    /// INTERNAL
    Internal = 13,
    /// UNAVAILABLE
    Unavailable = 14,
    /// DATA_LOSS
    DataLoss = 15,
    /// UNAUTHENTICATED
    Unauthenticated = 16,
}

/// A failure of an adapter. A denial is not a failure but an answer ([`Check::deny`](super::Check::deny)).
///
/// An [`anyhow::Error`] converts into INTERNAL with its whole chain of causes, so `.context("..")?` works in a handler;
/// [`ConfigErrors`] convert into INVALID_ARGUMENT.
///
/// ```
/// use mixer_adapter_core::{AdapterError, Code, anyhow::Context as _};
///
/// fn port(text: &str) -> Result<u16, AdapterError> {
///     Ok(text.parse().context("reading the port")?)
/// }
/// assert_eq!(port("x").unwrap_err().code(), Code::Internal);
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct AdapterError {
    code: Code,
    message: String,
    violations: Vec<Violation>,
    details: Vec<Any>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl AdapterError {
    /// Creates a failure with a gRPC code.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), violations: Vec::new(), details: Vec::new(), source: None }
    }

    /// Creates an UNAVAILABLE failure: a back end cannot be reached at the moment.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// Creates an INVALID_ARGUMENT failure: the configuration or the instance cannot be served.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// Adds a detail for programs, a message of [`google::rpc`](crate::proto::google::rpc) or any other one. Details beyond 4 KiB are not
    /// sent.
    ///
    /// ```
    /// use mixer_adapter_core::{AdapterError, proto::google::rpc::RetryInfo};
    /// let later = RetryInfo { retry_delay: Some(prost_types::Duration { seconds: 30, nanos: 0 }) };
    /// AdapterError::unavailable("the back end restarts").detail(&later);
    /// ```
    #[must_use]
    pub fn detail<M: prost::Name>(mut self, message: &M) -> Self {
        self.details.push(Any::pack(message));
        self
    }

    /// Adds the message in the language of users, by its BCP 47 tag; a detail `google.rpc.LocalizedMessage`.
    #[must_use]
    pub fn localized(self, locale: impl Into<String>, message: impl Into<String>) -> Self {
        self.detail(&LocalizedMessage { locale: locale.into(), message: message.into() })
    }

    /// Returns the details.
    pub fn details(&self) -> &[Any] {
        &self.details
    }

    /// Returns the gRPC code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the faults of the configuration; empty for other failures.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }
}

impl From<anyhow::Error> for AdapterError {
    fn from(error: anyhow::Error) -> Self {
        let shown = Self::new(Code::Internal, format!("{error:#}"));
        Self { source: Some(error.into()), ..shown }
    }
}

impl From<ConfigErrors> for AdapterError {
    fn from(errors: ConfigErrors) -> Self {
        let shown = Self::invalid(errors.to_string());
        Self { violations: errors.into_violations(), ..shown }
    }
}
