//! `InfrastructureBackend`: Validate, CreateSession, CloseSession. Every answer carries a status.

use std::sync::Arc;

use super::rpc::{Rpc, rpc};
use mixer_adapter_core::proto::{
    Any, Status,
    google::rpc::{BadRequest, bad_request::FieldViolation},
};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::{
    CloseSessionRequest, CloseSessionResponse, CreateSessionRequest, CreateSessionResponse, ValidateRequest,
    ValidateResponse,
};
use mixer_adapter_host::{
    Host, NewSession,
    handler::{CallError, Caller},
};

pub(crate) const VALIDATE: &str = "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/Validate";
pub(crate) const CREATE_SESSION: &str =
    "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/CreateSession";
pub(crate) const CLOSE_SESSION: &str =
    "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/CloseSession";

pub(super) const SERVICE: &str = "istio.mixer.adapter.model.v1beta1.InfrastructureBackend";

pub(super) fn methods(host: &Arc<Host>) -> [(&'static str, Rpc); 3] {
    [(VALIDATE, rpc(host, validate)), (CREATE_SESSION, rpc(host, create)), (CLOSE_SESSION, rpc(host, close))]
}

/// The id of a session as `adapter_config` (docs/behaviour/sessions.md#session-ids-in-calls).
pub(crate) fn session_config(id: String) -> Any {
    Any { type_url: "google.protobuf.Any.type_url".to_owned(), value: id.into() }
}

async fn validate(
    host: Arc<Host>,
    request: Box<ValidateRequest>,
    caller: Caller,
) -> Result<ValidateResponse, tonic::Status> {
    let ValidateRequest { adapter_config, inferred_types } = *request;
    let outcome = host.validate(NewSession { adapter_config, inferred_types }, &caller).await;
    Ok(ValidateResponse { status: Some(status(outcome.err())) })
}

async fn create(
    host: Arc<Host>,
    request: Box<CreateSessionRequest>,
    caller: Caller,
) -> Result<CreateSessionResponse, tonic::Status> {
    let CreateSessionRequest { adapter_config, inferred_types } = *request;
    let (session_id, error) =
        match host.create_session(NewSession { adapter_config, inferred_types }, &caller).await {
            Ok(id) => (id.to_string(), None),
            Err(error) => (String::new(), Some(error)),
        };
    Ok(CreateSessionResponse { session_id, status: Some(status(error)) })
}

async fn close(
    host: Arc<Host>,
    request: Box<CloseSessionRequest>,
    caller: Caller,
) -> Result<CloseSessionResponse, tonic::Status> {
    let outcome = host.close_session(&request.session_id, &caller).await;
    Ok(CloseSessionResponse { status: Some(status(outcome.err())) })
}

fn status(error: Option<CallError>) -> Status {
    let Some(error) = error else { return Status::default() };
    let violations: Vec<FieldViolation> = match &error {
        CallError::Refused { source, .. } => source
            .violations()
            .iter()
            .map(|fault| FieldViolation { field: fault.field.clone(), description: fault.reason.clone() })
            .collect(),
        CallError::Unreadable { source, .. } if !source.field.is_empty() => {
            vec![FieldViolation { field: source.field.clone(), description: source.reason.clone() }]
        }
        _ => Vec::new(),
    };
    let mut details = error.details();
    if !violations.is_empty() {
        details.insert(0, Any::pack(&BadRequest { field_violations: violations }));
    }
    Status { code: error.code() as i32, message: error.to_string(), details }
}
