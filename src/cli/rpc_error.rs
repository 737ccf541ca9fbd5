use std::{borrow::Cow, fmt};

use serde_json::{Value as Json, json};
use tonic::{Code, Status};

use mixer_adapter_core::{framework::status::status_name, proto};

/// A step without an answer, or with an answer that does not allow the next step.
#[derive(Debug, thiserror::Error)]
pub(super) struct RpcError {
    step: Option<&'static str>,
    code: Cow<'static, str>,
    message: String,
    /// What the user can do.
    hint: Option<String>,
}

impl RpcError {
    /// The call ended with a gRPC error.
    pub(super) fn of_call(status: &Status) -> Self {
        Self::new(None, status.code() as i32, status.message())
    }

    pub(super) fn of_step(step: &'static str, status: &Status) -> Self {
        Self::new(Some(step), status.code() as i32, status.message())
    }

    /// The answer of the step has a status other than OK.
    pub(super) fn of_answer(step: &'static str, status: &proto::Status) -> Self {
        Self::new(Some(step), status.code, &status.message)
    }

    /// The answer of the step violates the protocol.
    pub(super) fn protocol_violation(step: &'static str, message: &str) -> Self {
        Self::new(Some(step), Code::Internal as i32, message)
    }

    pub(super) fn interrupted() -> Self {
        Self::new(None, Code::Cancelled as i32, "interrupted")
    }

    fn new(step: Option<&'static str>, code: i32, message: &str) -> Self {
        Self { step, code: status_name(code), message: message.to_owned(), hint: None }
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
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

impl fmt::Display for RpcError {
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
