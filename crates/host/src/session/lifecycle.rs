//! Opens, closes and expires sessions: Validate, CreateSession and CloseSession of `InfrastructureBackend`.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use prost::bytes::Bytes;

use super::{Release, Session, SessionId, SessionLimitError};
use crate::{
    Host,
    handler::{AdapterInfo, CallError, Caller, FailedCall, log_failure},
    limits::Limit,
};
use mixer_adapter_core::{
    adapter::{InferredType, InferredTypes},
    framework::log_text::log_text,
    proto::Any,
};

/// The request of Validate and CreateSession.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NewSession {
    /// The handler's configuration.
    #[prost(message, optional, tag = "1")]
    pub adapter_config: Option<Any>,
    /// The `Type` messages of the instances that calls will carry, by their full names.
    #[prost(btree_map = "string, message", tag = "2")]
    pub inferred_types: BTreeMap<String, Any>,
}

impl Host {
    /// Validates a session without opening a handler.
    ///
    /// # Errors
    /// The configuration or an inferred type is refused.
    pub async fn validate(&self, new: NewSession, caller: &Caller) -> Result<(), CallError> {
        let checked = self.check_new(new, caller.connection).await;
        checked.map(drop).inspect_err(|error| self.log_refusal(error, caller))
    }

    /// Creates a session, or acquires the existing one with the same configuration and types. Equal requests have the same
    /// id.
    ///
    /// # Errors
    /// The configuration or an inferred type is refused.
    pub async fn create_session(&self, new: NewSession, caller: &Caller) -> Result<SessionId, CallError> {
        let outcome = self.try_create_session(new, caller).await;
        let count = if outcome.is_ok() { &self.counts.opened } else { &self.counts.refused };
        count.fetch_add(1, Relaxed);
        outcome.inspect_err(|error| self.log_refusal(error, caller))
    }

    /// Releases a claim of the caller on a session, or an abandoned claim. The last release ends the session; its handler closes
    /// after calls in flight. Ready at once if sessions are not shared.
    ///
    /// # Errors
    /// [`CallError::UnknownSession`] if no session has this id, [`CallError::NotClaimed`] if all of its claims belong to
    /// others, [`CallError::StoreAway`] if only the store that servers share knows.
    pub async fn close_session(&self, id: &str, caller: &Caller) -> Result<(), CallError> {
        let release = match (SessionId::parse(id.as_bytes()), &self.shared) {
            (None, _) => Release::Unknown,
            (Some(session), None) => self.sessions.release(&session, caller),
            (Some(session), Some(shared)) => self.release_shared(shared, &session, caller).await?,
        };
        match release {
            Release::Released(left) => {
                if left == 0 {
                    self.counts.closed.fetch_add(1, Relaxed);
                }
                Ok(())
            }
            Release::NotClaimed => Err(CallError::NotClaimed { id: id.to_owned() }),
            Release::Unknown => Err(CallError::UnknownSession { id: id.to_owned() }),
        }
    }

    /// Ends idle sessions and evicts idle handlers. Called at intervals of the idle time of a session divided by
    /// [`STEPS_TO_EXPIRE`](super::STEPS_TO_EXPIRE).
    pub fn expire_idle(&self) {
        let expired = self.sessions.expire_idle();
        if expired > 0 {
            self.counts.expired.fetch_add(expired as u64, Relaxed);
            tracing::info!(expired, "idle sessions expired");
        }
        self.handlers.sweep();
    }

    /// Logs the refusal of a session, at most ten of each code in ten seconds.
    fn log_refusal(&self, error: &CallError, caller: &Caller) {
        log_failure(&self.session_log, "session refused", caller, (error.code() as i32, error), || {
            FailedCall { adapter: error.adapter(), ..FailedCall::default() }
        });
    }

    async fn try_create_session(&self, new: NewSession, caller: &Caller) -> Result<SessionId, CallError> {
        let request = self.shared.is_some().then(|| Arc::new(new.clone()));
        let (id, adapter, config, types) = self.check_new(new, caller.connection).await?;
        let limits = self.session_options.limits;
        let turn = self.turn().await;
        let acquired = self.claim(&id, caller, || self.sessions.acquire(&id, caller, limits));
        if let Some(evicted) = acquired.map_err(|error| self.too_many_sessions(error))? {
            self.count_evicted(evicted, caller);
            self.share_claim(turn, &id).await;
            return Ok(id);
        }
        drop(turn);
        if !self.sessions.admits(caller, limits) {
            return Err(self.too_many_sessions(SessionLimitError::Sessions));
        }
        let handler = self.handlers.open_in_call(&adapter, config, &types, caller.connection).await?;
        let session = Session::new(id, handler, &types, request);
        let turn = self.turn().await;
        let created = self.claim(&id, caller, || self.sessions.create(session, caller, limits).map(Some));
        let evicted = created.map_err(|error| self.too_many_sessions(error))?;
        self.count_evicted(evicted.unwrap_or_default(), caller);
        self.share_claim(turn, &id).await;
        Ok(id)
    }

    /// Counts and logs sessions that were evicted for a caller's. Logs at most ten times in ten seconds.
    pub(super) fn count_evicted(&self, evicted: usize, caller: &Caller) {
        if evicted == 0 {
            return;
        }
        self.counts.evicted.fetch_add(evicted as u64, Relaxed);
        let Some(suppressed) = self.eviction_log.admit() else { return };
        tracing::warn!(
            evicted,
            peer = log_text(caller.peer_name()),
            suppressed,
            "at the limit of sessions, those of other connections ended in favour of a new one"
        );
    }

    fn too_many_sessions(&self, error: SessionLimitError) -> CallError {
        let limits = self.session_options.limits;
        match error {
            SessionLimitError::Sessions => {
                self.limit_exceeded(Limit::Sessions, format!("{} sessions are open", limits.sessions))
            }
            SessionLimitError::Bytes => self.limit_exceeded(
                Limit::SessionBytes,
                format!("open sessions take {} bytes, as estimated from their configurations", limits.bytes),
            ),
        }
    }

    /// Validates a session, and returns its id, adapter, canonical configuration and types.
    pub(super) async fn check_new(
        &self,
        new: NewSession,
        connection: u64,
    ) -> Result<(SessionId, Arc<AdapterInfo>, Bytes, InferredTypes), CallError> {
        let types = self.inferred_types(new.inferred_types)?;
        let mut templates: Vec<&str> = types.iter().map(|inferred| inferred.template).collect();
        templates.sort_unstable();
        templates.dedup();
        if let Some(config) = &new.adapter_config {
            self.check_config_size(config)?;
        }
        let (adapter, config) =
            self.select_adapter(new.adapter_config, &templates, &types, connection).await?;
        self.handlers.check_configurable(&adapter)?;
        self.handlers.validate(&adapter, &config, &types, connection).await?;
        Ok((self.session_id(&adapter, &config, &types), adapter, config, types))
    }

    fn inferred_types(&self, types: BTreeMap<String, Any>) -> Result<InferredTypes, CallError> {
        let types = types.into_iter().map(|(instance, any)| self.inferred_type(instance, any));
        Ok(InferredTypes::new(types.collect::<Result<_, _>>()?))
    }

    fn inferred_type(&self, instance: String, any: Any) -> Result<InferredType, CallError> {
        let message = any.message_name();
        let template = self.adapters.template_of_type(message);
        let Some((template, method)) =
            template.and_then(|template| Some((template, self.adapters.method(template.method)?)))
        else {
            let reason = format!("`{message}` is not the Type of a template that is served here");
            return Err(CallError::InferredType { instance, reason });
        };
        match method.canonical_type(any.value.clone()) {
            Ok(encoded) => Ok(InferredType::new(instance, template.name, encoded)),
            Err(error) => {
                Err(CallError::InferredType { instance, reason: format!("it is not a {message}: {error}") })
            }
        }
    }

    /// Makes the id of a session: equal for equal configurations and types, in every process with the same key.
    fn session_id(&self, adapter: &AdapterInfo, config: &Bytes, types: &InferredTypes) -> SessionId {
        let types = types.iter().flat_map(|inferred| {
            [inferred.instance.as_bytes(), inferred.template.as_bytes(), inferred.encoded.as_ref()]
        });
        self.session_options.key.id([adapter.name.as_bytes(), config.as_ref()].into_iter().chain(types))
    }
}
