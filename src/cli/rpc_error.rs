use std::fmt;

use serde_json::{Value as Json, json};
use tonic::Status;

use crate::answer::{detail_json, proto_status, status_json};
use mixer_adapter_core::{framework::status::status_name, proto};

/// A step without an answer, or with an answer that does not allow the next step.
#[derive(Debug, thiserror::Error)]
pub(super) struct RpcError {
    step: Option<&'static str>,
    status: proto::Status,
    /// A hint for the user.
    hint: Option<String>,
}

impl RpcError {
    /// The call ended with a gRPC error.
    pub(super) fn of_call(status: &Status) -> Self {
        Self { step: None, status: proto_status(status), hint: None }
    }

    pub(super) fn of_step(step: &'static str, status: &Status) -> Self {
        Self::of_answer(step, proto_status(status))
    }

    /// The answer of the step has a status other than OK.
    pub(super) fn of_answer(step: &'static str, status: proto::Status) -> Self {
        Self { step: Some(step), status, hint: None }
    }

    /// The answer of the step violates the protocol.
    pub(super) fn protocol_violation(step: &'static str, message: &str) -> Self {
        Self::of_step(step, &Status::internal(message))
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn to_json(&self) -> Json {
        let mut error = status_json(&self.status);
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
        f.write_str(&status_name(self.status.code))?;
        for text in [Some(self.status.message.as_str()), self.hint.as_deref()].into_iter().flatten() {
            if !text.is_empty() {
                write!(f, ": {text}")?;
            }
        }
        self.status.details.iter().try_for_each(|detail| write!(f, "\ndetail: {}", detail_json(detail)))
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
        let details = vec![proto::Any::pack(&localized)];
        let error = RpcError::of_call(&grpc_error(proto::Status { code: 14, message: "no".into(), details }));
        let detail =
            r#"{"@type":"type.googleapis.com/google.rpc.LocalizedMessage","locale":"de","message":"nein"}"#;
        assert_eq!(error.to_string(), format!("UNAVAILABLE: no\ndetail: {detail}"));
        assert_eq!(error.to_json()["error"]["details"][0].to_string(), detail);
    }
}
