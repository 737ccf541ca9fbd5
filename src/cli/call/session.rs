//! A session around calls, as Mixer's own session client makes it; each step is told on stderr.

use std::{collections::BTreeMap, io::Write as _, time::Duration};

use prost::Message as _;
use prost_reflect::{DynamicMessage, ReflectMessage as _};

use super::request::Prepared;
use crate::cli::{failure::Failure, remote::Remote};
use mixer_adapter_core::proto::{Any, Status};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::{
    CloseSessionRequest, CloseSessionResponse, CreateSessionRequest, CreateSessionResponse, ValidateRequest,
    ValidateResponse,
};

/// Validates the configuration and makes a session with it. Returns its id.
pub(super) async fn open(
    remote: &Remote,
    prepared: &Prepared,
    timeout: Option<Duration>,
) -> Result<String, Failure> {
    for (name, inferred) in &prepared.inferred_types {
        let fields = serde_json::to_string(inferred).unwrap_or_default();
        tell(&format!("{name}: {} {fields}", inferred.descriptor().full_name()));
    }
    let adapter_config = prepared.adapter_config.clone();
    let inferred_types: BTreeMap<String, Any> =
        prepared.inferred_types.iter().map(|(name, inferred)| (name.clone(), pack(inferred))).collect();
    let request =
        ValidateRequest { adapter_config: adapter_config.clone(), inferred_types: inferred_types.clone() };
    let answer = remote.rpc::<ValidateResponse>(VALIDATE, &request, timeout).await;
    let answer = answer.map_err(|status| Failure::of_step("Validate", &status))?;
    let missing = || Failure::broken("Validate", "the answer has no status; a real Mixer crashes on that");
    expect_ok("Validate", answer.status.ok_or_else(missing)?)?;
    tell("Validate: OK");

    let request = CreateSessionRequest { adapter_config, inferred_types };
    let answer = remote.rpc::<CreateSessionResponse>(CREATE, &request, timeout).await;
    let answer = answer.map_err(|status| Failure::of_step("CreateSession", &status))?;
    expect_ok("CreateSession", answer.status.unwrap_or_default())?;
    if answer.session_id.is_empty() {
        return Err(Failure::broken("CreateSession", "the answer is OK, but has no session_id"));
    }
    tell(&format!("CreateSession: OK, session {}", answer.session_id));
    Ok(answer.session_id)
}

/// As Mixer's session client packs a type: its name alone for type_url, without a slash
/// (docs/behaviour/sessions.md#the-bypass-adapter).
fn pack(inferred: &DynamicMessage) -> Any {
    Any { type_url: inferred.descriptor().full_name().to_owned(), value: inferred.encode_to_vec().into() }
}

/// What the calls of a session carry in place of a configuration (docs/behaviour/sessions.md#session-ids-in-calls).
pub(super) fn config(session: &str) -> Any {
    Any {
        type_url: "google.protobuf.Any.type_url".to_owned(),
        value: prost::bytes::Bytes::copy_from_slice(session.as_bytes()),
    }
}

pub(super) async fn close(
    remote: &Remote,
    session_id: String,
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    let answer =
        remote.rpc::<CloseSessionResponse>(CLOSE, &CloseSessionRequest { session_id }, timeout).await;
    let answer = answer.map_err(|status| Failure::of_step("CloseSession", &status))?;
    expect_ok("CloseSession", answer.status.unwrap_or_default())?;
    tell("CloseSession: OK");
    Ok(())
}

const VALIDATE: &str = "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/Validate";
const CREATE: &str = "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/CreateSession";
const CLOSE: &str = "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/CloseSession";

fn expect_ok(step: &'static str, status: Status) -> Result<(), Failure> {
    if status.code == 0 { Ok(()) } else { Err(Failure::refused(step, &status)) }
}

fn tell(line: &str) {
    // The steps go on where nobody listens.
    let _ = writeln!(std::io::stderr(), "{line}");
}
