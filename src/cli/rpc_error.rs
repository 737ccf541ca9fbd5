use std::{borrow::Cow, fmt};

use serde_json::{Value as Json, json};
use tonic::{Code, Status};

use mixer_adapter_core::{
    framework::status::status_name,
    proto::{self, Any},
};
use mixer_adapter_host::handler::details_of;

use crate::answer::detail_json;

/// A step without an answer, or with an answer that does not allow the next step.
#[derive(Debug, thiserror::Error)]
pub(super) struct RpcError {
    step: Option<&'static str>,
    code: Cow<'static, str>,
    message: String,
    details: Vec<Any>,
    /// A hint for the user.
    hint: Option<String>,
}

impl RpcError {
    /// The call ended with a gRPC error.
    pub(super) fn of_call(status: &Status) -> Self {
        Self::of_status(None, status)
    }

    pub(super) fn of_step(step: &'static str, status: &Status) -> Self {
        Self::of_status(Some(step), status)
    }

    /// The answer of the step has a status other than OK.
    pub(super) fn of_answer(step: &'static str, status: &proto::Status) -> Self {
        Self { details: status.details.clone(), ..Self::new(Some(step), status.code, &status.message) }
    }

    /// The answer of the step violates the protocol.
    pub(super) fn protocol_violation(step: &'static str, message: &str) -> Self {
        Self::new(Some(step), Code::Internal as i32, message)
    }

    pub(super) fn interrupted() -> Self {
        Self::new(None, Code::Cancelled as i32, "interrupted")
    }

    fn of_status(step: Option<&'static str>, status: &Status) -> Self {
        Self { details: details_of(status), ..Self::new(step, status.code() as i32, status.message()) }
    }

    fn new(step: Option<&'static str>, code: i32, message: &str) -> Self {
        let (code, message) = (status_name(code), message.to_owned());
        Self { step, code, message, details: Vec::new(), hint: None }
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
        if !self.details.is_empty() {
            error["details"] = self.details.iter().map(detail_json).collect();
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
        self.details.iter().try_for_each(|detail| write!(f, "\ndetail: {}", detail_json(detail)))
    }
}

#[cfg(test)]
mod tests {
    use mixer_adapter_core::proto::google::rpc::LocalizedMessage;
    use mixer_adapter_host::handler::grpc_error;

    use super::*;

    #[test]
    fn details_are_shown_as_those_of_answers_are() {
        let localized = LocalizedMessage { locale: "de".to_owned(), message: "nein".to_owned() };
        let details = vec![Any::pack(&localized)];
        let error = RpcError::of_call(&grpc_error(proto::Status { code: 14, message: "no".into(), details }));
        let detail =
            r#"{"@type":"type.googleapis.com/google.rpc.LocalizedMessage","locale":"de","message":"nein"}"#;
        assert_eq!(error.to_string(), format!("UNAVAILABLE: no\ndetail: {detail}"));
        assert_eq!(error.to_json()["error"]["details"][0].to_string(), detail);
    }
}
