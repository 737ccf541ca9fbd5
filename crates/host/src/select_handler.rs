//! Selects the handler of a call: by session id, by configuration, by the newest session with its instances, or the only
//! adapter of its template without configuration, in this order.

use std::sync::Arc;

use crate::{
    Host,
    handler::{AdapterInfo, BoxFuture, CallContext, CallError, Caller, Handler, Resolver, quoted_list},
    limits::Limit,
    session::{SessionId, SessionLookup},
};
use mixer_adapter_core::{adapter::InferredTypes, proto::Any};

/// The type_url of a session id in `adapter_config`, as in the comments of Mixer's generated protos
/// (docs/behaviour/sessions.md#session-ids-in-calls). The value is the id, plain or as a StringValue.
const SESSION_ID: &str = "google.protobuf.Any.type_url";

impl Resolver for Host {
    fn open(&self, call: &CallContext<'_>) -> Option<Arc<Handler>> {
        match &call.adapter_config {
            None => {
                let Caller { connection, peer, .. } = call.caller;
                let lookup = self.session_options.lookup;
                self.sessions.find(call.template, &call.instances, *connection, peer.as_deref(), lookup)
            }
            Some(config) if config.message_name() == SESSION_ID => {
                self.sessions.handler(&session_id(config)?)
            }
            Some(config) => {
                let adapter = self.adapters.configured_by(config.message_name())?;
                self.handlers.cached(adapter, &config.value)
            }
        }
    }

    fn resolve<'a>(&'a self, call: CallContext<'a>) -> BoxFuture<'a, Result<Arc<Handler>, CallError>> {
        Box::pin(async move {
            match call.adapter_config {
                // `open` found no such session here.
                Some(config) if config.message_name() == SESSION_ID => {
                    if let Some(id) = session_id(&config)
                        && let Some(handler) = self.load_session(&id, call.caller).await?
                    {
                        return Ok(handler);
                    }
                    let id = String::from_utf8_lossy(session_text(&config)).into_owned();
                    Err(CallError::UnknownSession { id })
                }
                Some(config) => self.open_configured(config, call.template, call.caller.connection).await,
                None => match self.find_shared(call.template, &call.instances, call.caller).await? {
                    Some(handler) => Ok(handler),
                    None => {
                        self.open_unconfigured(call.template, &call.instances, call.caller.connection).await
                    }
                },
            }
        })
    }
}

impl Host {
    /// Checks the size of a configuration in a call or a session.
    pub(crate) fn check_config_size(&self, config: &Any) -> Result<(), CallError> {
        let (size, max) = (config.value.len(), self.handlers.max_config_size);
        if size <= max {
            return Ok(());
        }
        Err(self.limit_exceeded(
            Limit::ConfigSize,
            format!("the configuration has {size} bytes; the limit is {max}"),
        ))
    }

    /// Counts a refusal.
    pub(crate) fn limit_exceeded(&self, limit: Limit, reason: String) -> CallError {
        self.refusals.count(limit);
        CallError::LimitExceeded { limit, reason }
    }

    async fn open_configured(
        &self,
        config: Any,
        template: &'static str,
        connection: u64,
    ) -> Result<Arc<Handler>, CallError> {
        let sent = config.clone();
        let no_types = InferredTypes::default();
        self.check_config_size(&config)?;
        let (adapter, canonical) =
            self.select_adapter(Some(config), &[template], &no_types, connection).await?;
        self.handlers.check_configurable(&adapter)?;
        self.handlers.validate(&adapter, &canonical, &no_types, connection).await?;
        let handler = self.handlers.open_in_call(&adapter, canonical.clone(), &no_types, connection).await?;
        // The cache is looked up by the bytes of a message as received. A Struct is not looked up; caching its handler under
        // the canonical bytes keeps the handler open.
        let is_own = sent.message_name() == adapter.config.full_name();
        self.handlers.cache(&handler, if is_own { &sent.value } else { &canonical });
        Ok(handler)
    }

    /// Opens the only adapter that serves the template, if it accepts an empty configuration.
    async fn open_unconfigured(
        &self,
        template: &'static str,
        instances: &[&str],
        connection: u64,
    ) -> Result<Arc<Handler>, CallError> {
        let serving: Vec<&Arc<AdapterInfo>> =
            self.adapters.iter().filter(|adapter| adapter.serves(template)).collect();
        let not_configured = |adapters: String| CallError::NoConfiguration {
            template,
            sessions: match self.session_options.lookup {
                SessionLookup::Own => "no session created on this connection",
                SessionLookup::Any => "no live session",
            },
            instances: quoted_list(instances),
            adapters,
        };
        let [adapter] = serving[..] else {
            let names = quoted_list(serving.iter().map(|adapter| adapter.name));
            return Err(not_configured(format!("more than one adapter serves the template: {names}")));
        };
        let empty = self.handlers.canonical(adapter, Default::default())?;
        if let Some(handler) = self.handlers.cached(adapter, &empty) {
            return Ok(handler);
        }
        self.handlers.check_configurable(adapter)?;
        let no_types = InferredTypes::default();
        self.handlers.validate(adapter, &empty, &no_types, connection).await.map_err(|error| {
            not_configured(format!(
                "the only adapter that serves the template, `{}`, needs one ({error})",
                adapter.name
            ))
        })?;
        let handler = self.handlers.open_in_call(adapter, empty.clone(), &no_types, connection).await?;
        self.handlers.cache(&handler, &empty);
        Ok(handler)
    }
}

/// Returns the text of a session id, which may be in a StringValue.
fn session_text(config: &Any) -> &[u8] {
    match &config.value[..] {
        // A StringValue of less than 128 bytes: the tag of field 1, the length, the text.
        [0x0a, length, text @ ..] if usize::from(*length) == text.len() => text,
        text => text,
    }
}

fn session_id(config: &Any) -> Option<SessionId> {
    SessionId::parse(session_text(config))
}
