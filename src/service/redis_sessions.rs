//! Sessions in Redis, which servers share (`--sessions`).

use std::{sync::Arc, time::Duration};

use crate::random::random_id;
use mixer_adapter_host::{
    NewSession,
    handler::BoxFuture,
    session::{ClaimOwner, Release, SessionId, SessionStore, SessionStoreError, SharedClaim, SharedState},
};
use mixer_adapter_redis::{
    Client, ClientError, millis,
    redis::{Cmd, ErrorKind, FromRedisValue, Script, ScriptInvocation},
};
use prost::Message as _;

/// How long a call waits for Redis.
const TIMEOUT: Duration = Duration::from_millis(500);
/// How long other servers can learn that a session was closed. A server that cannot reach Redis for longer opens it again.
const CLOSED: Duration = Duration::from_secs(600);

/// Sessions in Redis: for each a hash with the request that created it and the claims of its owners, and for each instance the id of its
/// newest session. All of them expire.
pub(crate) struct RedisSessions {
    client: Arc<Client>,
    claim: Script,
    release: Script,
    states: Script,
}

mixer_adapter_core::framework::debug_fields!(RedisSessions { client });

impl RedisSessions {
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self {
            client,
            claim: Script::new(include_str!("redis_sessions/claim.lua")),
            release: Script::new(include_str!("redis_sessions/release.lua")),
            states: Script::new(include_str!("redis_sessions/states.lua")),
        }
    }

    fn key(&self, kind: &str, id: &SessionId) -> String {
        format!("{}:{kind}:{id}", self.client.key_prefix())
    }

    async fn invoke<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, SessionStoreError> {
        self.client.invoke(call, TIMEOUT).await.map_err(failed)
    }

    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, SessionStoreError> {
        self.client.query(command, TIMEOUT).await.map_err(failed)
    }

    /// Removes claims, or abandons them. Returns what release.lua does.
    async fn remove(
        &self,
        id: &SessionId,
        owner: ClaimOwner,
        count: u32,
        is_abandoned: bool,
        epoch: Option<u64>,
    ) -> Result<i64, SessionStoreError> {
        let mut call = self.release.key(self.key("session", id));
        call.arg(owner.to_string()).arg(count).arg(u8::from(is_abandoned)).arg(millis(CLOSED));
        call.arg(epoch.map_or_else(String::new, |epoch| epoch.to_string()));
        self.invoke(&call).await
    }
}

fn failed(error: ClientError) -> SessionStoreError {
    let is_undone = match &error {
        ClientError::Away => true,
        // Redis refuses a script at its first write, such as during a failover, or without memory.
        ClientError::Redis(error) => matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension),
        _ => false,
    };
    let reason = error.to_string();
    if is_undone { SessionStoreError::NotSent(reason) } else { SessionStoreError::Unanswered(reason) }
}

impl SessionStore for RedisSessions {
    fn claim<'a>(&'a self, claim: SharedClaim<'a>) -> BoxFuture<'a, Result<u64, SessionStoreError>> {
        Box::pin(async move {
            let mut call = self.claim.key(self.key("session", claim.id));
            for instance in claim.instances {
                call.key(self.key("instance", instance));
            }
            // Not zero, which stands for none.
            let next_epoch = random_id() | 1;
            call.arg(claim.id.to_string())
                .arg(claim.request.encode_to_vec())
                .arg(millis(claim.life))
                .arg(claim.epoch)
                .arg(next_epoch)
                .arg(claim.new.len());
            for (owner, count) in claim.new.iter().chain(claim.all) {
                call.arg(owner.to_string()).arg(*count);
            }
            let epoch: String = self.invoke(&call).await?;
            // Nobody else writes here.
            Ok(epoch.parse().unwrap_or(0))
        })
    }

    fn release<'a>(
        &'a self,
        id: &'a SessionId,
        owner: ClaimOwner,
        count: u32,
        epoch: Option<u64>,
    ) -> BoxFuture<'a, Result<Release, SessionStoreError>> {
        Box::pin(async move {
            let left = self.remove(id, owner, count, false, epoch).await?;
            Ok(match (left, u64::try_from(left)) {
                (_, Ok(left)) => Release::Released(left),
                (-1, _) => Release::NotClaimed,
                _ => Release::Unknown,
            })
        })
    }

    fn abandon<'a>(
        &'a self,
        id: &'a SessionId,
        owner: ClaimOwner,
        count: u32,
        epoch: u64,
    ) -> BoxFuture<'a, Result<(), SessionStoreError>> {
        Box::pin(async move { self.remove(id, owner, count, true, Some(epoch)).await.map(drop) })
    }

    fn load<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<NewSession>, SessionStoreError>> {
        Box::pin(async move {
            let mut command = Cmd::new();
            command.arg("HGET").arg(self.key("session", id)).arg("request");
            let request: Option<Vec<u8>> = self.query(&command).await?;
            // A value that is not a request was stored by something else; its id would not match either.
            Ok(request.and_then(|request| NewSession::decode(&request[..]).ok()))
        })
    }

    fn find<'a>(
        &'a self,
        instance: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<SessionId>, SessionStoreError>> {
        Box::pin(async move {
            let mut command = Cmd::new();
            command.arg("GET").arg(self.key("instance", instance));
            let id: Option<Vec<u8>> = self.query(&command).await?;
            Ok(id.and_then(|id| SessionId::parse(&id)))
        })
    }

    fn states<'a>(
        &'a self,
        ids: &'a [SessionId],
    ) -> BoxFuture<'a, Result<Vec<SharedState>, SessionStoreError>> {
        Box::pin(async move {
            let mut call = self.states.prepare_invoke();
            for id in ids {
                call.key(self.key("session", id));
            }
            let states: Vec<String> = self.invoke(&call).await?;
            Ok(states
                .iter()
                .map(|state| match state.strip_prefix('-') {
                    Some(epoch) => epoch.parse().map_or(SharedState::Unknown, SharedState::Closed),
                    None => state.parse().map_or(SharedState::Unknown, SharedState::Open),
                })
                .collect())
        })
    }

    fn is_connected(&self) -> bool {
        self.client.is_connected()
    }
}
