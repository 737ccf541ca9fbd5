//! A session around calls, as Mixer's own session client opens it. Prints each step on stderr.

use std::{collections::BTreeMap, io::Write as _};

use prost::Message as _;
use prost_reflect::{DynamicMessage, ReflectMessage as _};

use super::request::PreparedCall;
use crate::{
    cli::{rpc_client::RpcClient, rpc_error::RpcError},
    printable::printable,
    service::{CLOSE_SESSION, CREATE_SESSION, VALIDATE},
};
use mixer_adapter_core::proto::{Any, Status};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::{
    CloseSessionRequest, CloseSessionResponse, CreateSessionRequest, CreateSessionResponse, ValidateRequest,
    ValidateResponse,
};

/// Validates the configuration, creates a session and returns its id.
pub(super) async fn open(client: &RpcClient, prepared: &PreparedCall) -> Result<String, RpcError> {
    for (name, inferred) in &prepared.inferred_types {
        let fields = serde_json::to_string(inferred).unwrap_or_default();
        print_step(&format!("{name}: {} {fields}", inferred.descriptor().full_name()));
    }
    let adapter_config = prepared.adapter_config.clone();
    let inferred_types: BTreeMap<String, Any> =
        prepared.inferred_types.iter().map(|(name, inferred)| (name.clone(), pack(inferred))).collect();
    let request =
        ValidateRequest { adapter_config: adapter_config.clone(), inferred_types: inferred_types.clone() };
    let answer = client.rpc::<ValidateResponse>(VALIDATE, &request).await;
    let answer = answer.map_err(|status| RpcError::of_step("Validate", &status))?;
    let status = answer.status.ok_or_else(|| {
        RpcError::protocol_violation("Validate", "the answer has no status, on which a real Mixer crashes")
    })?;
    expect_ok("Validate", status)?;
    print_step("Validate: OK");

    let request = CreateSessionRequest { adapter_config, inferred_types };
    let answer = client.rpc::<CreateSessionResponse>(CREATE_SESSION, &request).await;
    let answer = answer.map_err(|status| RpcError::of_step("CreateSession", &status))?;
    expect_ok("CreateSession", answer.status.unwrap_or_default())?;
    if answer.session_id.is_empty() {
        return Err(RpcError::protocol_violation("CreateSession", "the answer is OK without a session_id"));
    }
    print_step(&format!("CreateSession: OK, session {}", answer.session_id));
    Ok(answer.session_id)
}

/// Packs a type as Mixer's session client does: the type_url is the name, without a slash
/// (docs/behaviour/sessions.md#the-bypass-adapter).
fn pack(inferred: &DynamicMessage) -> Any {
    Any { type_url: inferred.descriptor().full_name().to_owned(), value: inferred.encode_to_vec().into() }
}

pub(super) async fn close(client: &RpcClient, session_id: String) -> Result<(), RpcError> {
    let answer = client.rpc::<CloseSessionResponse>(CLOSE_SESSION, &CloseSessionRequest { session_id }).await;
    let answer = answer.map_err(|status| RpcError::of_step("CloseSession", &status))?;
    expect_ok("CloseSession", answer.status.unwrap_or_default())?;
    print_step("CloseSession: OK");
    Ok(())
}

fn expect_ok(step: &'static str, status: Status) -> Result<(), RpcError> {
    if status.code == 0 { Ok(()) } else { Err(RpcError::of_answer(step, status)) }
}

fn print_step(line: &str) {
    // A closed stderr must not stop the steps.
    let _ = writeln!(std::io::stderr(), "{}", printable(line, &['\n'], false));
}
