//! A served resource.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use imbl::OrdMap;

use super::{
    lifetime::{aliases, ttl},
    references::references,
    selector::Selector,
};
use crate::{
    envoy_v2::translate::{self, TranslateError},
    proto::istio::mcp::v1alpha1::Resource,
    stream::raw_resource::RawResource,
};
use mixer_adapter_config::annotations::SELECTOR;

/// Resources by name. Copies share their equal parts, and are compared in time proportional to their differences.
pub(crate) type Entries = OrdMap<Arc<str>, Arc<Entry>>;

/// A served resource. Entries are equal when their resources are.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) resource: RawResource,
    /// A digest of the whole resource.
    pub(crate) digest: u128,
    /// The resource in version 2 of Envoy's API, or the reason why it has none.
    v2: OnceLock<Result<Arc<Self>, TranslateError>>,
    /// The nodes that can see it; `None` for all.
    pub(super) selector: Option<Arc<Selector>>,
    /// The time to live at clients without a heartbeat.
    pub(crate) ttl: Option<Duration>,
    /// Its other names.
    pub(crate) aliases: Vec<String>,
    /// The names that it refers to.
    references: OnceLock<Vec<Arc<str>>>,
}

impl Entry {
    pub(super) fn new(resource: &RawResource, name: &str) -> Self {
        let mut resource = RawResource { name: name.to_owned(), ..resource.clone() };
        if resource.version.is_empty() {
            resource.version = version(resource.digest());
        }
        // An invalid one is a fault of the resource, whose intended nodes are unknown.
        let selector = Selector::of(&resource.annotations).unwrap_or_else(|_| Some(Selector::none()));
        Self {
            digest: resource.digest(),
            // Invalid ones are faults, too.
            ttl: ttl(&resource.annotations).unwrap_or_default(),
            aliases: aliases(&resource.annotations).unwrap_or_default(),
            resource,
            v2: OnceLock::new(),
            selector: selector.map(Arc::new),
            references: OnceLock::new(),
        }
    }

    /// Returns the names that it refers to.
    pub(super) fn references(&self) -> &[Arc<str>] {
        self.references.get_or_init(|| references(&self.resource.body))
    }

    /// Returns the resource in version 2 of Envoy's API. The reason why it has none is logged once.
    pub(super) fn v2(&self) -> Result<&Arc<Self>, &TranslateError> {
        let v2 = self.v2.get_or_init(|| {
            let resource = &self.resource;
            match translate::to_v2(&resource.body) {
                Ok(body) => {
                    Ok(Arc::new(Self::new(&RawResource { body, ..resource.clone() }, &resource.name)))
                }
                Err(error) => {
                    let (name, message) = (&resource.name, resource.body.message_name());
                    tracing::warn!(resource = name, message, %error, "not served in v2 of Envoy's API");
                    Err(error)
                }
            }
        });
        v2.as_ref()
    }

    /// Returns the text of its selector.
    pub(super) fn selector_text(&self) -> Option<&str> {
        self.resource.annotations.get(SELECTOR).map(String::as_str)
    }

    /// Returns the resource as a message of MCP.
    pub(crate) fn to_message(&self) -> Resource {
        self.resource.to_message()
    }

    pub(crate) fn name(&self) -> &str {
        &self.resource.name
    }

    /// Returns its version, which changes with any part of it.
    pub(crate) fn version(&self) -> String {
        version(self.digest)
    }
}

fn version(digest: u128) -> String {
    format!("{:016x}", digest >> 64)
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}
