//! The four ways in which a Handle call's configuration is found, in the order in which they are tried.

use std::sync::Arc;

use super::Host;
use crate::{
    handler::{AdapterInfo, BoxFuture, CallError, Claim, Handler, Resolver, list},
    session::SessionId,
};
use mixer_adapter_core::{adapter::InferredTypes, proto::Any};

/// The type_url of a session id in `adapter_config`, as the comments of the generated protos promise it
/// (docs/behaviour/sessions.md#session-ids-in-calls). Its value is the id, plain or as a StringValue.
const SESSION_ID: &str = "google.protobuf.Any.type_url";

impl Resolver for Host {
    fn open(&self, claim: &Claim<'_>) -> Option<Arc<Handler>> {
        match &claim.adapter_config {
            None => self.sessions.find(claim.template, &claim.instances, claim.connection),
            Some(config) if config.message_name() == SESSION_ID => {
                self.sessions.handler(&session_id(config)?)
            }
            Some(config) => {
                let adapter = self.adapters.configured_by(config.message_name())?;
                self.handlers.cached(adapter, &config.value)
            }
        }
    }

    fn resolve<'a>(&'a self, claim: Claim<'a>) -> BoxFuture<'a, Result<Arc<Handler>, CallError>> {
        Box::pin(async move {
            match claim.adapter_config {
                // `open` looked for the session already.
                Some(config) if config.message_name() == SESSION_ID => Err(CallError::UnknownSession {
                    id: String::from_utf8_lossy(session_text(&config)).into_owned(),
                }),
                Some(config) => self.open_configured(config, claim.template).await,
                None => self.open_unconfigured(claim.template, &claim.instances).await,
            }
        })
    }
}

impl Host {
    async fn open_configured(&self, config: Any, template: &'static str) -> Result<Arc<Handler>, CallError> {
        let sent = config.clone();
        let no_types = InferredTypes::default();
        let (adapter, canonical) = self.assign(Some(config), &[template], &no_types)?;
        self.handlers.validate(&adapter, &canonical, &no_types)?;
        let handler = self.handlers.open(&adapter, canonical.clone()).await?;
        // The next call looks for the bytes it brings. A Struct is not looked for, but its handler lives on, too.
        let is_own = sent.message_name() == adapter.config.full_name();
        self.handlers.keep(&handler, if is_own { &sent.value } else { &canonical });
        Ok(handler)
    }

    /// The only adapter that serves the template, if it takes its configuration without any field.
    async fn open_unconfigured(
        &self,
        template: &'static str,
        instances: &[&str],
    ) -> Result<Arc<Handler>, CallError> {
        let serving: Vec<&Arc<AdapterInfo>> =
            self.adapters.iter().filter(|adapter| adapter.serves(template)).collect();
        let lacking =
            |adapters: String| CallError::NoConfiguration { template, instances: list(instances), adapters };
        let [adapter] = serving[..] else {
            let names = list(serving.iter().map(|adapter| adapter.name));
            return Err(lacking(format!("more than one adapter serves the template: {names}")));
        };
        let nothing = self.handlers.canonical(adapter, Default::default())?;
        if let Some(handler) = self.handlers.cached(adapter, &nothing) {
            return Ok(handler);
        }
        self.handlers.validate(adapter, &nothing, &InferredTypes::default()).map_err(|error| {
            lacking(format!(
                "the only adapter that serves the template, `{}`, needs one ({error})",
                adapter.name
            ))
        })?;
        let handler = self.handlers.open(adapter, nothing.clone()).await?;
        self.handlers.keep(&handler, &nothing);
        Ok(handler)
    }
}

/// The text of a session id, out of its StringValue if it is in one.
fn session_text(config: &Any) -> &[u8] {
    match &config.value[..] {
        // A StringValue of less than 128 bytes: the key of field 1, the length, the text.
        [0x0a, length, text @ ..] if usize::from(*length) == text.len() => text,
        text => text,
    }
}

fn session_id(config: &Any) -> Option<SessionId> {
    SessionId::parse(session_text(config))
}
