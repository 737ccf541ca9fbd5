//! Resources in messages of xDS servers: wrapped as in MCP, or bare.

use std::time::Duration;

use prost::Message;
use sha2::{Digest as _, Sha256};

use crate::{
    proto::{
        envoy::service::discovery::v3::Resource as Discovered,
        istio::mcp::v1alpha1::{Metadata, Resource},
    },
    stream::{body, name},
};
use mixer_adapter_core::proto::Any;

/// The message with metadata and body, as istiod sends it.
const WRAPPER: &str = "istio.mcp.v1alpha1.Resource";
/// The message with the name of a resource that has no other place for it.
const DISCOVERED: &str = "envoy.service.discovery.v3.Resource";

/// The resources of a response, without their wrappers.
#[derive(Default)]
pub(super) struct Unwrapped {
    pub(super) resources: Vec<Resource>,
    /// Times to live by name, also of resources that are only renewed.
    pub(super) lifetimes: Vec<(String, Duration)>,
    /// Names, with the versions of the resource and of the server, if the server has one.
    pub(super) versions: Vec<(String, String, String)>,
}

/// Unwraps the resources of a collection. A heartbeat has no resource: it changes nothing.
pub(super) fn all(collection: &str, discovered: impl IntoIterator<Item = Discovered>) -> Unwrapped {
    let mut unwrapped = Unwrapped::default();
    for Discovered { name, version, resource, ttl, .. } in discovered {
        let resource = match resource {
            Some(any) => Some(read(any, &name, &version)),
            None if ttl.is_some() => None,
            None => {
                let metadata =
                    Metadata { name: name.clone(), version: version.clone(), ..Metadata::default() };
                Some(Resource { metadata: Some(metadata), body: None })
            }
        };
        let own = resource.as_ref().and_then(|resource| resource.metadata.as_ref());
        let name = name::normal(collection, own.map_or(&name, |own| &own.name)).into_owned();
        // A time of zero is without limit.
        let lifetime = ttl.and_then(|ttl| Duration::try_from(ttl).ok()).filter(|ttl| !ttl.is_zero());
        unwrapped.lifetimes.extend(lifetime.map(|lifetime| (name.clone(), lifetime)));
        if let Some(own) = own.filter(|_| !version.is_empty()) {
            unwrapped.versions.push((name, own.version.clone(), version));
        }
        unwrapped.resources.extend(resource);
    }
    unwrapped
}

/// Reads a resource of a whole set: the envelope with its name and its time to live, or a body without an envelope.
pub(super) fn envelope(any: Any) -> Discovered {
    let enveloped = if is(&any, DISCOVERED) { Discovered::decode(any.value.clone()).ok() } else { None };
    let enveloped = enveloped.filter(|envelope| envelope.resource.is_some() || envelope.ttl.is_some());
    enveloped.unwrap_or_else(|| Discovered { resource: Some(any), ..Discovered::default() })
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
