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
use mixer_adapter_host::{Host, NewSession, handler::CallError};

pub(super) const CREATE_SESSION: &str =
    "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/CreateSession";

pub(super) const SERVICE: &str = "istio.mixer.adapter.model.v1beta1.InfrastructureBackend";

pub(super) fn methods(host: &Arc<Host>) -> [(&'static str, Rpc); 3] {
    let validate = {
        let host = host.clone();
        rpc(move |request: ValidateRequest, caller| {
            let host = host.clone();
            async move {
                let new = NewSession {
                    adapter_config: request.adapter_config,
                    inferred_types: request.inferred_types,
                };
                Ok(ValidateResponse { status: Some(status(host.validate(new, &caller).await.err())) })
            }
        })
    };
    let create = {
        let host = host.clone();
        rpc(move |request: CreateSessionRequest, caller| {
            let host = host.clone();
            async move {
                let new = NewSession {
                    adapter_config: request.adapter_config,
                    inferred_types: request.inferred_types,
                };
                Ok(match host.create_session(new, &caller).await {
                    Ok(id) => {
                        CreateSessionResponse { session_id: id.to_string(), status: Some(status(None)) }
                    }
                    Err(error) => {
                        CreateSessionResponse { session_id: String::new(), status: Some(status(Some(error))) }
                    }
                })
            }
        })
    };
    let close = {
        let host = host.clone();
        rpc(move |request: CloseSessionRequest, caller| {
            let outcome = host.close_session(&request.session_id, &caller);
            async move { Ok(CloseSessionResponse { status: Some(status(outcome.err())) }) }
        })
    };
    [
        ("/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/Validate", validate),
        (CREATE_SESSION, create),
        ("/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/CloseSession", close),
    ]
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
