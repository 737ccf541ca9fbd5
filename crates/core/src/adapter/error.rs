use std::{error::Error, fmt};

use super::{ConfigErrors, Violation};

/// Why something was refused or failed: the codes of `google.rpc.Code` but for OK, which is no failure.
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

/// A failure of an adapter: not a denial, which is an answer.
///
/// An `anyhow::Error` converts into one (INTERNAL, with its whole chain of causes), so `.context("..")?` works in a
/// handler; [`ConfigErrors`] convert into INVALID_ARGUMENT.
#[derive(Debug)]
pub struct AdapterError {
    code: Code,
    message: String,
    violations: Vec<Violation>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl AdapterError {
    /// A failure with the gRPC code that callers are to see.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), violations: Vec::new(), source: None }
    }

    /// UNAVAILABLE: a back-end cannot be reached just now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// INVALID_ARGUMENT: the configuration or the instance cannot be served as it is.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The code that callers see.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The fields of the configuration that were refused; empty for any other failure.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }
}

impl fmt::Display for AdapterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for AdapterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<anyhow::Error> for AdapterError {
    fn from(error: anyhow::Error) -> Self {
        Self {
            code: Code::Internal,
            message: format!("{error:#}"),
            violations: Vec::new(),
            source: Some(error.into()),
        }
    }
}

impl From<ConfigErrors> for AdapterError {
    fn from(errors: ConfigErrors) -> Self {
        Self {
            code: Code::InvalidArgument,
            message: errors.to_string(),
            violations: errors.into_violations(),
            source: None,
        }
    }
}
