//! Attributes of a rate limit descriptor.

use std::time::SystemTime;

use mixer_adapter_engine::attribute::{Bag, StringMap};

use super::builder::{AttributeBuilder, AttributeError};
use crate::{proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor, request_headers::trimmed};

/// Adds the attributes of a descriptor: its entries as a map, and each entry whose key is the name of an attribute. Values often come
/// from headers, with white space around them.
///
/// # Errors
/// The value of an entry is not of the type of its attribute.
pub(crate) fn descriptor_attributes(
    domain: &str,
    namespace: Option<&str>,
    descriptor: &RateLimitDescriptor,
    bag: Bag,
) -> Result<Bag, AttributeError> {
    let mut attributes = AttributeBuilder::new(bag);
    attributes.set(standard!("context.reporter.kind"), "inbound");
    attributes.set_with(standard!("context.time"), || Some(SystemTime::now()));
    attributes.set_text(standard!("ratelimit.domain"), domain);
    let entries = descriptor.entries.iter().map(|entry| (entry.key.as_str(), trimmed(&entry.value)));
    attributes.set_with(standard!("ratelimit.descriptor"), || Some(entries.clone().collect::<StringMap>()));
    attributes.set_some(standard!("destination.namespace"), namespace);
    attributes.set_configured("descriptor entry", entries)?;
    Ok(attributes.finish())
}
