use crate::expression::CompileError;

/// An error in an instance's params.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub(crate) struct ParamsError {
    /// The path of the field, such as `dimensions["code"]`.
    pub field: String,
    /// The fault and how to correct it.
    pub reason: String,
    /// The expression that does not compile, and its error.
    pub expression: Option<(String, CompileError)>,
}

impl ParamsError {
    pub(super) fn new(path: &str, reason: impl Into<String>) -> Self {
        Self { field: path.to_owned(), reason: reason.into(), expression: None }
    }

    pub(super) fn single(path: &str, reason: impl Into<String>) -> Vec<Self> {
        vec![Self::new(path, reason)]
    }
}
