//! Attributes of a rate limit descriptor.

use std::sync::Arc;

use mixer_adapter_engine::attribute::{Bag, StringMap, Vocabulary};

use super::builder::{AttributeBuilder, AttributeError};
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;

/// Returns the attributes of a descriptor: its entries as a map, and those whose key is the name of an attribute.
///
/// # Errors
/// The value of an entry is not of the type of its attribute.
pub(crate) fn descriptor_attributes(
    domain: &str,
    namespace: Option<&str>,
    descriptor: &RateLimitDescriptor,
    vocabulary: &Arc<Vocabulary>,
) -> Result<Bag, AttributeError> {
    let mut attributes = AttributeBuilder::new(vocabulary);
    attributes.set("context.reporter.kind", "inbound");
    attributes.set("context.time", std::time::SystemTime::now());
    attributes.set_text("ratelimit.domain", domain);
    let entries = || descriptor.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str()));
    attributes.set("ratelimit.descriptor", entries().collect::<StringMap>());
    attributes.set_some("destination.namespace", namespace);
    attributes.set_configured("descriptor entry", entries())?;
    Ok(attributes.finish())
}
