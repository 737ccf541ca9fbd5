//! Sessions of others.

use std::collections::HashMap;

use bytes::Bytes;
use futures_util::future::join_all;
use mixer_adapter_core::{
    proto::{Any, CheckResult},
    template::Template as _,
};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::{
    CloseSessionRequest, CloseSessionResponse, CreateSessionRequest, CreateSessionResponse,
};
use mixer_adapter_list as list;
use mixer_adapter_templates::ListEntry;

use super::{
    Expectation,
    configurations::{any, entry},
};
use crate::{client::Client, server::Addresses};

const BACKEND: &str = "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend";

/// A newer session of another client for the same instance, and the closing of a session by one who did not create it.
pub(super) async fn foreign_sessions(addresses: Addresses, _: &mut u64) -> anyhow::Result<Expectation> {
    let (owner, attacker) = (Client::connect(addresses.grpc).await?, Client::connect(addresses.grpc).await?);
    let session = create(&owner, "listed").await?;
    for _ in 0..1_000 {
        create(&attacker, "other").await?;
        let request = CloseSessionRequest { session_id: session.clone() };
        let _refused: CloseSessionResponse =
            match attacker.call(&format!("{BACKEND}/CloseSession"), &request).await? {
                Ok(answer) => answer,
                Err(_) => continue,
            };
    }
    // Neither an id nor a configuration: the session of the own connection answers.
    let result: CheckResult = owner.call(ListEntry::METHOD, &entry(None, "listed")).await??;
    let code = result.status.map_or(0, |status| status.code);
    if code != 0 {
        return Ok(Expectation::Missed(format!("a session of another client answered: code {code}")));
    }
    let id = Any {
        type_url: "google.protobuf.Any.type_url".to_owned(),
        value: Bytes::from(session.clone().into_bytes()),
    };
    match owner.call::<CheckResult>(ListEntry::METHOD, &entry(Some(id), "listed")).await? {
        Ok(_) => Ok(Expectation::Met),
        Err(status) => Ok(Expectation::Missed(format!("another client closed the session: {status}"))),
    }
}

/// 200,000 sessions with configurations of a kilobyte. The server has room for a part of them only.
pub(super) async fn many_sessions(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    const SESSIONS: usize = 200_000;
    const AT_A_TIME: usize = 100;
    let (owner, attacker) = (Client::connect(addresses.grpc).await?, Client::connect(addresses.grpc).await?);
    create(&owner, "listed").await?;
    let mut refused = None;
    for first in (0..SESSIONS).step_by(AT_A_TIME) {
        let listed = |index: usize| format!("{index:01000}");
        let sessions = (first..first + AT_A_TIME).map(|index| {
            let attacker = &attacker;
            async move { create(attacker, &listed(index)).await }
        });
        *sent += 1_000 * AT_A_TIME as u64;
        refused = join_all(sessions).await.into_iter().find_map(Result::err);
        if refused.is_some() {
            break;
        }
    }
    let Some(refused) = refused else {
        return Ok(Expectation::Missed(format!("{SESSIONS} sessions were created")));
    };
    if !refused.to_string().contains("(memory-limit)") {
        return Ok(Expectation::Missed(format!("a refusal does not name its limit: {refused}")));
    }
    let result: CheckResult = owner.call(ListEntry::METHOD, &entry(None, "listed")).await??;
    match result.status.map_or(0, |status| status.code) {
        0 => Ok(Expectation::Met),
        code => Ok(Expectation::Missed(format!("an older session does not answer: code {code}"))),
    }
}

/// Creates a session of a list with one entry.
async fn create(client: &Client, listed: &str) -> anyhow::Result<String> {
    let params = list::Params { overrides: vec![listed.to_owned()], ..list::Params::default() };
    let type_url = "type.googleapis.com/listentry.Type".to_owned();
    let inferred_types: HashMap<String, Any> =
        [("i.instance.istio-system".to_owned(), Any { type_url, value: Bytes::new() })].into();
    let request = CreateSessionRequest {
        adapter_config: Some(any(&params)),
        inferred_types: inferred_types.into_iter().collect(),
    };
    let answer: CreateSessionResponse = client.call(&format!("{BACKEND}/CreateSession"), &request).await??;
    anyhow::ensure!(!answer.session_id.is_empty(), "no session: {:?}", answer.status);
    Ok(answer.session_id)
}
