//! Resources in messages of xDS servers: wrapped as in MCP, or bare.

use std::time::Duration;

use prost::Message;
use sha2::{Digest as _, Sha256};

use crate::{
    proto::{
        envoy::service::discovery::v3::Resource as Discovered,
        istio::mcp::v1alpha1::{Metadata, Resource},
    },
    stream::body,
};
use mixer_adapter_core::proto::Any;

/// The message with metadata and body, as istiod sends it.
const WRAPPER: &str = "istio.mcp.v1alpha1.Resource";
/// The message with the name of a resource that has no other place for it.
const DISCOVERED: &str = "envoy.service.discovery.v3.Resource";

/// A resource of a whole set, without its wrapper.
pub(super) enum Unwrapped {
    Resource(Resource),
    /// A heartbeat of the resource of that name.
    Heartbeat(String),
}

/// Unwraps a resource of a complete response, with its time to live.
pub(super) fn any(any: Any) -> (Unwrapped, Option<Duration>) {
    let discovered = if is(&any, DISCOVERED) { Discovered::decode(any.value.clone()).ok() } else { None };
    match discovered {
        Some(Discovered { name, version, resource: Some(any), ttl, .. }) => {
            (Unwrapped::Resource(read(any, &name, &version)), ttl.and_then(lifetime))
        }
        Some(Discovered { name, resource: None, ttl: Some(ttl), .. }) => {
            (Unwrapped::Heartbeat(name), lifetime(ttl))
        }
        _ => (Unwrapped::Resource(read(any, "", "")), None),
    }
}

/// Converts a time to live; `None` is without limit.
pub(super) fn lifetime(ttl: prost_types::Duration) -> Option<Duration> {
    Duration::try_from(ttl).ok().filter(|ttl| !ttl.is_zero())
}

/// Unwraps a resource of a response of changes. `None` for a heartbeat, which changes nothing.
pub(super) fn resource(discovered: Discovered) -> Option<Resource> {
    let Discovered { name, version, resource, ttl, .. } = discovered;
    match resource {
        Some(any) => Some(read(any, &name, &version)),
        None if ttl.is_some() => None,
        None => {
            Some(Resource { metadata: Some(Metadata { name, version, ..Metadata::default() }), body: None })
        }
    }
}

/// Returns whether a resource of a response of changes has a name by which another response can refer to it.
pub(super) fn is_named(discovered: &Discovered) -> bool {
    !discovered.name.is_empty()
        || !discovered.resource.as_ref().is_some_and(|any| !is(any, WRAPPER) && name_in(any).is_none())
}

fn is(any: &Any, message: &str) -> bool {
    any.message_name() == message
}

/// Reads a resource. Its name is the one around it, else that in its metadata, else that in its body, else a digest of
/// its content. Its version is that in the metadata, else the one around it.
///
/// A wrapper that cannot be read is unchanged: the reader of the body reports it.
fn read(any: Any, name: &str, version: &str) -> Resource {
    let wrapped = if is(&any, WRAPPER) { Resource::decode(any.value.clone()).ok() } else { None };
    let mut resource = wrapped.unwrap_or_else(|| Resource { metadata: None, body: Some(any) });
    let metadata = resource.metadata.get_or_insert_default();
    if !name.is_empty() {
        metadata.name = name.to_owned();
    }
    if metadata.version.is_empty() {
        metadata.version = version.to_owned();
    }
    if let (true, Some(body)) = (metadata.name.is_empty(), &resource.body) {
        metadata.name = name_in(body).unwrap_or_else(|| nameless(body));
    }
    resource
}

fn name_in(body: &Any) -> Option<String> {
    body::named(body).filter(|name| !name.is_empty())
}

fn nameless(body: &Any) -> String {
    let digest = Sha256::digest(&body.value);
    let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("nameless-{digits}")
}
