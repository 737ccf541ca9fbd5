//! Checks values against a list of strings, addresses or patterns, from the configuration or from a URL.
//!
//! Behaves as in docs/behaviour/adapters.md#listchecker; the README lists the differences.
//!
//! # Features
//!
//! * `https` (default): lists from https:// providers.

mod addresses;
mod entries;
mod error;
mod fetch;
mod go_syntax;
mod limits;
mod pattern_set;
mod printed;
mod remote_list;
mod settings;
mod shared;
mod warnings;

use std::time::Duration;

use mixer_adapter_core::{Adapter, AdapterError, Call, Check, Code, Context, Handle};
use mixer_adapter_templates::{ListEntry, listentry};
use tokio::time::Instant;

use self::{
    entries::{Entries, Subject},
    remote_list::RemoteList,
};

mixer_adapter_core::include_proto!("adapter.list.config");

pub use settings::ListSettings;

/// The handler: a list, and whether its entries are allowed or denied.
#[derive(Debug)]
pub struct List {
    source: Source,
    blacklist: bool,
    caching_interval: Duration,
    caching_use_count: u32,
}

#[derive(Debug)]
enum Source {
    /// The list is in the configuration.
    Fixed(Entries),
    Remote(RemoteList),
}

impl Adapter for List {
    const NAME: &str = "listchecker";
    const DESCRIPTION: &str = "Checks whether a value is on a list.";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const EXAMPLE: &str = include_str!("../example.yaml");
    const ANSWERS_FROM_MEMORY: bool = true;
    type Config = ListSettings;
    type Templates = (ListEntry,);

    async fn open(settings: ListSettings, context: Context) -> Result<Self, AdapterError> {
        let ListSettings { provider, entry_type, overrides, blacklist, caching_interval, caching_use_count } =
            settings;
        let source = match provider {
            None => Source::Fixed(Entries::parse(entry_type, b"", &overrides)?),
            Some(provider) => {
                Source::Remote(RemoteList::start(provider, &context, entry_type, overrides).await)
            }
        };
        Ok(Self { source, blacklist, caching_interval, caching_use_count })
    }

    fn additional_bytes(&self) -> usize {
        match &self.source {
            Source::Fixed(entries) => entries.compiled_bytes(),
            Source::Remote(list) => list.bytes(),
        }
    }
}

impl Handle<ListEntry> for List {
    async fn handle(&self, call: Call<listentry::InstanceMsg>) -> Result<Check, AdapterError> {
        let value = call.into_inner().value.unwrap_or_default();
        let check = match &self.source {
            Source::Fixed(entries) => self.check(entries, value),
            Source::Remote(list) => {
                let entries = list.entries(Instant::now())?;
                self.check(&entries, value)
            }
        };
        Ok(check.valid_for(self.caching_interval).uses(self.caching_use_count))
    }
}

impl List {
    fn check(&self, entries: &Entries, value: mixer_adapter_core::value::Value) -> Check {
        let subject = match Subject::of(&value) {
            Ok(subject) => subject,
            Err(error) => return Check::deny(Code::InvalidArgument, error.to_string()),
        };
        match (entries.contains(&subject), self.blacklist) {
            (Err(error), _) => Check::deny(Code::InvalidArgument, error.to_string()),
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
