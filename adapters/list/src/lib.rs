//! Checks a value against a list of strings, addresses or patterns, written in the configuration or fetched from a URL.
//!
//! Behaviour: docs/behaviour/adapters.md#listchecker; what differs is in the README.

mod addresses;
mod entries;
mod fetch;
mod patterns;
mod printed;
mod provided;
mod settings;

use std::{sync::Arc, time::Duration};

use mixer_adapter_core::{
    Adapter, AdapterError, Check, Code, Handle,
    adapter::{ConfigErrors, InferredTypes},
    template::{ListEntry, listentry},
};
use tokio::time::Instant;

use self::{
    entries::{Entries, Subject},
    provided::Provided,
    settings::Settings,
};

mod config {
    #![allow(missing_docs, unreachable_pub)]
    mixer_adapter_core::include_proto!("adapter.list.config");
}

pub use config::{Params, params};

/// The handler: a list, and what it means to be on it.
#[derive(Debug)]
pub struct List {
    source: Source,
    blacklist: bool,
    caching_interval: Duration,
    caching_use_count: u32,
}

#[derive(Debug)]
enum Source {
    /// The list is all in the configuration.
    Fixed(Arc<Entries>),
    Provided(Provided),
}

impl Adapter for List {
    const NAME: &str = "listchecker";
    const DESCRIPTION: &str = "Checks whether a value is on a list.";
    type Config = Params;
    type Templates = (ListEntry,);

    async fn open(params: Params) -> Result<Self, AdapterError> {
        let settings = Settings::read(&params)?;
        let source = match settings.provider {
            // Without a body there is nothing left to go wrong: the overrides were validated.
            None => Source::Fixed(Arc::new(
                Entries::parse(settings.kind, b"", &settings.overrides).map_err(AdapterError::invalid)?,
            )),
            Some(provider) => {
                Source::Provided(Provided::start(provider, settings.kind, settings.overrides).await)
            }
        };
        Ok(Self {
            source,
            blacklist: params.blacklist,
            caching_interval: settings.caching_interval,
            caching_use_count: settings.caching_use_count,
        })
    }

    fn validate(params: &Params, _: &InferredTypes) -> Result<(), ConfigErrors> {
        Settings::read(params).map(drop)
    }
}

impl Handle<ListEntry> for List {
    async fn handle(&self, entry: listentry::InstanceMsg) -> Result<Check, AdapterError> {
        let entries = match &self.source {
            Source::Fixed(entries) => entries.clone(),
            Source::Provided(provided) => provided.entries(Instant::now())?,
        };
        let check = self.check(&entries, entry.value.unwrap_or_default());
        Ok(check.valid_for(self.caching_interval).uses(self.caching_use_count))
    }
}

impl List {
    fn check(&self, entries: &Entries, value: mixer_adapter_core::value::Value) -> Check {
        let subject = match Subject::of(&value) {
            Ok(subject) => subject,
            Err(bad) => return Check::deny(Code::InvalidArgument, bad.to_string()),
        };
        match (entries.contains(&subject), self.blacklist) {
            (Err(bad), _) => Check::deny(Code::InvalidArgument, bad.to_string()),
            (Ok(true), true) => Check::deny(Code::PermissionDenied, format!("{subject} is blacklisted")),
            (Ok(false), false) => {
                Check::deny(Code::PermissionDenied, format!("{subject} is not whitelisted"))
            }
            (Ok(_), _) => Check::allow(),
        }
    }
}

#[cfg(test)]
mixer_adapter::testing::compliance!(
    List,
    config("overrides: [a]"),
    refuses("caching_interval", "caching_interval: -1s")
);

#[cfg(test)]
mod tests;
