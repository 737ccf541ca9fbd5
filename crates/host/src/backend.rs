//! Validate, CreateSession and CloseSession: the meaning of `InfrastructureBackend`.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use prost::bytes::Bytes;

use super::Host;
use crate::{
    handler::{AdapterInfo, CallError},
    session::{AnnouncedInstance, Session, SessionId},
};
use mixer_adapter_core::{
    adapter::{InferredType, InferredTypes},
    proto::Any,
};

/// What Validate and CreateSession are asked with.
#[derive(Clone, Debug, Default)]
pub struct NewSession {
    /// The handler's configuration.
    pub adapter_config: Option<Any>,
    /// The `Type` messages of the instances it will be called with, by their full names.
    pub inferred_types: BTreeMap<String, Any>,
}

impl Host {
    /// Whether CreateSession would be accepted, as far as can be told without opening anything.
    pub fn validate(&self, new: NewSession) -> Result<(), CallError> {
        self.check(new).map(drop)
    }

    /// Makes a session, or claims the equal one there is. Its id stays the same for the same configuration.
    pub async fn create_session(&self, new: NewSession, connection: u64) -> Result<SessionId, CallError> {
        let outcome = self.try_create_session(new, connection).await;
        let count = if outcome.is_ok() { &self.counts.opened } else { &self.counts.refused };
        count.fetch_add(1, Relaxed);
        outcome
    }

    /// Gives a claim on a session back; the last one ends it. Calls in flight finish first.
    pub fn close_session(&self, id: &str) -> Result<(), CallError> {
        let unknown = || CallError::UnknownSession { id: id.to_owned() };
        let left =
            SessionId::parse(id.as_bytes()).and_then(|id| self.sessions.close(&id)).ok_or_else(unknown)?;
        if left == 0 {
            self.counts.closed.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    async fn try_create_session(&self, new: NewSession, connection: u64) -> Result<SessionId, CallError> {
        let (adapter, config, types) = self.check(new)?;
        let id = session_id(&adapter, &config, &types);
        if self.sessions.claim(&id, connection).is_some() {
            return Ok(id);
        }
        let handler = self.handlers.open(&adapter, config).await?;
        let instances = types.iter().map(|inferred| AnnouncedInstance {
            name: inferred.instance.as_str().into(),
            template: inferred.template,
        });
        self.sessions.create(Session::new(id, handler, instances.collect()), connection);
        Ok(id)
    }

    fn check(&self, new: NewSession) -> Result<(Arc<AdapterInfo>, Bytes, InferredTypes), CallError> {
        let types = self.inferred_types(new.inferred_types)?;
        let mut templates: Vec<&str> = types.iter().map(|inferred| inferred.template).collect();
        templates.sort_unstable();
        templates.dedup();
        let (adapter, config) = self.assign(new.adapter_config, &templates, &types)?;
        self.handlers.validate(&adapter, &config, &types)?;
        Ok((adapter, config, types))
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
            let why = format!("`{message}` is the Type of no template that is served here");
            return Err(CallError::InferredType { instance, why });
        };
        match method.canonical_type(any.value.clone()) {
            Ok(encoded) => Ok(InferredType::new(instance, template.name, encoded)),
            Err(error) => Err(CallError::InferredType { instance, why: format!("not a {message}: {error}") }),
        }
    }
}

/// Equal for equal configuration, in every process.
fn session_id(adapter: &AdapterInfo, config: &Bytes, types: &InferredTypes) -> SessionId {
    let types = types.iter().flat_map(|inferred| {
        [inferred.instance.as_bytes(), inferred.template.as_bytes(), inferred.encoded.as_ref()]
    });
    SessionId::of([adapter.name.as_bytes(), config.as_ref()].into_iter().chain(types))
}
