//! Resources in messages of xDS.

use prost::Message as _;

use super::watch::Content;
use crate::{
    proto::envoy::{config::core::v3::ControlPlane, service::discovery::v3::Resource},
    stream::{body, source::entry::Entry},
};
use mixer_adapter_core::proto::Any;

/// The wrapper of resources that are not requested by the type of their bodies.
const WRAPPER: &str = "type.googleapis.com/istio.mcp.v1alpha1.Resource";

/// The message with the time to live of a resource in a whole set.
const ENVELOPE: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

/// Returns a resource in the form of the requested type: `type.googleapis.com/MESSAGE` is the bare body,
/// `group/version/Kind` is wrapped with its metadata (docs/behaviour/xds.md#istio-resources-over-xds).
pub(super) fn any(entry: &Entry, type_url: &str) -> Any {
    let resource = &entry.resource;
    if is_bare(type_url) {
        resource.body.clone()
    } else {
        Any { type_url: WRAPPER.to_owned(), value: resource.to_message().encode_to_vec().into() }
    }
}

/// Returns whether resources of that requested type are sent without their metadata.
pub(super) fn is_bare(type_url: &str) -> bool {
    type_url.split('/').count() == 2
}

/// Returns whether resources of that requested type have their names in an envelope only.
pub(super) fn is_unnamed(type_url: &str) -> bool {
    is_bare(type_url) && type_url.rsplit('/').next().is_some_and(|message| !body::has_name(message))
}

/// Returns a resource with its names and its own version, and the time to live for clients that support it.
pub(super) fn resource(entry: &Entry, type_url: &str, ttl: bool) -> Resource {
    let ttl = entry.ttl.filter(|_| ttl);
    Resource {
        version: entry.version(),
        resource: Some(any(entry, type_url)),
        name: entry.name().to_owned(),
        aliases: entry.aliases.clone(),
        ttl: ttl.and_then(|ttl| ttl.try_into().ok()),
    }
}

/// Returns a heartbeat, which renews the time to live of a resource.
pub(super) fn heartbeat(entry: &Entry) -> Resource {
    Resource {
        version: entry.version(),
        name: entry.name().to_owned(),
        ttl: entry.ttl.and_then(|ttl| ttl.try_into().ok()),
        ..Resource::default()
    }
}

/// Returns a resource in the wrapper that a whole set needs for the time to live. Clients recognise a heartbeat by the
/// version of the response.
pub(super) fn wrapped(entry: &Entry, type_url: &str, content: &Content) -> Any {
    let resource = if content.heartbeat { heartbeat(entry) } else { resource(entry, type_url, true) };
    let resource = Resource { version: content.version.clone(), ..resource };
    Any { type_url: ENVELOPE.to_owned(), value: resource.encode_to_vec().into() }
}

/// Returns the identity of the server.
pub(super) fn control_plane() -> ControlPlane {
    ControlPlane { identifier: concat!("mixer-adapter ", env!("CARGO_PKG_VERSION")).to_owned() }
}
