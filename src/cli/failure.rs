use std::{borrow::Cow, fmt};

use serde_json::{Value as Json, json};
use tonic::{Code, Status};

use mixer_adapter_core::{framework::status::status_name, proto};

/// A step that got no answer, or an answer that the next step cannot go on from.
#[derive(Debug, thiserror::Error)]
pub(super) struct Failure {
    step: Option<&'static str>,
    code: Cow<'static, str>,
    message: String,
    /// What to try, where that can be told.
    hint: Option<String>,
}

impl Failure {
    /// The call itself ended with a gRPC error.
    pub(super) fn of_call(status: &Status) -> Self {
        Self::new(None, status.code() as i32, status.message())
    }

    pub(super) fn of_step(step: &'static str, status: &Status) -> Self {
        Self::new(Some(step), status.code() as i32, status.message())
    }

    /// The step was answered, with a status that is not OK.
    pub(super) fn refused(step: &'static str, status: &proto::Status) -> Self {
        Self::new(Some(step), status.code, &status.message)
    }

    /// The step was answered, but not as its protocol demands.
    pub(super) fn broken(step: &'static str, message: &str) -> Self {
        Self::new(Some(step), Code::Internal as i32, message)
    }

    pub(super) fn interrupted() -> Self {
        Self::new(None, Code::Cancelled as i32, "interrupted")
    }

    fn new(step: Option<&'static str>, code: i32, message: &str) -> Self {
        Self { step, code: status_name(code), message: message.to_owned(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn to_json(&self) -> Json {
        let mut error = json!({ "code": self.code, "message": self.message });
        for (name, text) in [("step", self.step), ("hint", self.hint.as_deref())] {
            if let Some(text) = text {
                error[name] = text.into();
            }
        }
        json!({ "error": error })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(step) = self.step {
            write!(f, "{step}: ")?;
        }
        f.write_str(&self.code)?;
        for text in [Some(self.message.as_str()), self.hint.as_deref()].into_iter().flatten() {
            if !text.is_empty() {
                write!(f, ": {text}")?;
            }
        }
        Ok(())
    }
}
