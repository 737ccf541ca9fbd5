//! The fields of the envelope of an xDS resource, beside its body.

use std::{collections::BTreeMap, time::Duration};

use mixer_adapter_config::annotations::{ALIASES, TTL};
use mixer_adapter_core::value::parse_duration;

/// The shortest time to live: clients receive several heartbeats in it.
const SHORTEST: Duration = Duration::from_secs(1);
/// The maximum number of aliases of a resource.
const MAX_ALIASES: usize = 100;

/// The reason why an annotation of the envelope is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvelopeError {
    #[error("ttl: {0:?} is not a valid duration of 1s or more; write it like \"5s\" or \"1m30s\"")]
    Ttl(String),
    #[error("aliases: {0:?} is not a list of at most {MAX_ALIASES} names; write it like [\"a\", \"b\"]")]
    Aliases(String),
}

/// Returns the time to live of a resource with these annotations, if it has one.
pub(crate) fn ttl(annotations: &BTreeMap<String, String>) -> Result<Option<Duration>, EnvelopeError> {
    let Some(text) = annotations.get(TTL) else { return Ok(None) };
    let ttl = parse_duration(text).and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos);
    let ttl = ttl.filter(|ttl| *ttl >= SHORTEST).ok_or_else(|| EnvelopeError::Ttl(text.clone()))?;
    Ok(Some(ttl))
}

/// Returns the other names of a resource with these annotations.
pub(crate) fn aliases(annotations: &BTreeMap<String, String>) -> Result<Vec<String>, EnvelopeError> {
    let Some(text) = annotations.get(ALIASES) else { return Ok(Vec::new()) };
    let names: Option<Vec<String>> = serde_saphyr::from_str(text).ok();
    let names = names.filter(|names| names.len() <= MAX_ALIASES && names.iter().all(|name| !name.is_empty()));
    names.ok_or_else(|| EnvelopeError::Aliases(text.clone()))
}
