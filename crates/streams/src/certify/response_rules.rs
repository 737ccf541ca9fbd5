//! Rules for the content of a single response.

use std::collections::BTreeMap;

use prost_reflect::DynamicMessage;

use super::Violation;
use crate::{
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse, Resource as Discovered},
        istio::mcp::v1alpha1::{IncrementalMeshConfigResponse, MeshConfigResponse, Resource, Resources},
    },
    stream::shorthand::Summarize,
    types::Types,
};
use mixer_adapter_config::Collection;
use mixer_adapter_core::proto::Any;

pub(super) const BODIES: &str = "each resource has a body of its type";
pub(super) const VERSIONS: &str = "each resource of a change has a version";
pub(super) const INCREMENTAL: &str = "changes of a collection are sent only if they were requested";
pub(super) const REMOVED: &str = "a whole collection removes no names";

/// Messages that resources are wrapped in.
const WRAPPERS: [&str; 2] = ["envoy.service.discovery.v3.Resource", "envoy.api.v2.Resource"];
const MCP_RESOURCE: &str = "istio.mcp.v1alpha1.Resource";
/// The type of bodies that have no specific type.
const STRUCT: &str = "google.protobuf.Struct";

/// The rules for the content of a response.
pub(super) trait Rules: Summarize {
    /// Returns the violations in its content.
    fn violations(&self) -> Vec<Violation>;

    /// Returns the versions of its resources by name, if it has them.
    fn versions(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

impl Rules for Resources {
    fn violations(&self) -> Vec<Violation> {
        let mut found = of_resources(&self.collection, &self.resources);
        // No check requests changes.
        if self.incremental {
            found.push(Violation::new(INCREMENTAL, "a response that is a change"));
        } else if let Some(name) = self.removed_resources.first() {
            found.push(Violation::new(REMOVED, format!("the removal of {name:?}")));
        }
        found
    }
}

impl Rules for MeshConfigResponse {
    fn violations(&self) -> Vec<Violation> {
        of_resources(&self.type_url, &self.resources)
    }
}

impl Rules for IncrementalMeshConfigResponse {
    fn violations(&self) -> Vec<Violation> {
        let mut found = of_resources("", &self.resources);
        let metadata = self.resources.iter().filter_map(|resource| resource.metadata.as_ref());
        found.extend(unversioned(metadata.map(|metadata| (&*metadata.name, &*metadata.version))));
        found
    }

    fn versions(&self) -> BTreeMap<String, String> {
        let metadata = self.resources.iter().filter_map(|resource| resource.metadata.as_ref());
        metadata.map(|metadata| (metadata.name.clone(), metadata.version.clone())).collect()
    }
}

impl Rules for DiscoveryResponse {
    fn violations(&self) -> Vec<Violation> {
        let bodies = self.resources.iter().enumerate();
        bodies.filter_map(|(place, any)| of_body(&self.type_url, &format!("resource {place}"), any)).collect()
    }
}

impl Rules for DeltaDiscoveryResponse {
    fn violations(&self) -> Vec<Violation> {
        let bodies = self.resources.iter().filter_map(|resource| match &resource.resource {
            Some(any) => of_body(&self.type_url, &resource.name, any),
            // Only the time to live of a resource is renewed without it.
            None if resource.ttl.is_some() => None,
            None => Some(absent(&resource.name)),
        });
        let versions = self.resources.iter().map(|resource| (&*resource.name, &*resource.version));
        bodies.chain(unversioned(versions)).collect()
    }

    fn versions(&self) -> BTreeMap<String, String> {
        self.resources.iter().map(|resource| (resource.name.clone(), resource.version.clone())).collect()
    }
}

fn unversioned<'r>(mut resources: impl Iterator<Item = (&'r str, &'r str)>) -> Option<Violation> {
    let (name, _) = resources.find(|(_, version)| version.is_empty())?;
    Some(Violation::new(VERSIONS, format!("{name:?} without a version")))
}

fn of_resources(collection: &str, resources: &[Resource]) -> Vec<Violation> {
    resources.iter().filter_map(|resource| of_resource(collection, resource)).collect()
}

fn of_resource(collection: &str, resource: &Resource) -> Option<Violation> {
    let name = resource.metadata.as_ref().map_or("", |metadata| &metadata.name);
    let Some(body) = &resource.body else { return Some(absent(name)) };
    let expected =
        Collection::new(collection).message().map(|message| format!("type.googleapis.com/{message}"));
    match expected {
        Some(expected) if body.message_name() != STRUCT => of_body(&expected, name, body),
        _ => undecodable(name, body),
    }
}

/// Checks the body of a resource of that type, which may be in a wrapper.
fn of_body(type_url: &str, name: &str, any: &Any) -> Option<Violation> {
    let message = any.message_name();
    if WRAPPERS.contains(&message) {
        let wrapper: Discovered = match prost::Message::decode(any.value.clone()) {
            Ok(wrapper) => wrapper,
            Err(error) => return Some(invalid(name, message, &error)),
        };
        return match &wrapper.resource {
            Some(body) => of_body(type_url, &wrapper.name, body),
            None => wrapper.ttl.is_none().then(|| absent(&wrapper.name)),
        };
    }
    if message == MCP_RESOURCE {
        return match prost::Message::decode(any.value.clone()) {
            Ok(resource) => of_resource("", &resource),
            Err(error) => Some(invalid(name, message, &error)),
        };
    }
    if message != type_url.rsplit('/').next().unwrap_or_default() {
        return Some(Violation::new(BODIES, format!("{name:?} with a body of the type {:?}", any.type_url)));
    }
    undecodable(name, any)
}

fn undecodable(name: &str, body: &Any) -> Option<Violation> {
    let message = body.message_name();
    let descriptor = Types::default().find(message)?;
    let error = DynamicMessage::decode(descriptor, body.value.clone()).err()?;
    Some(invalid(name, message, &error))
}

fn invalid(name: &str, message: &str, error: &prost::DecodeError) -> Violation {
    Violation::new(BODIES, format!("{name:?} with a body that is not a valid {message}: {error}"))
}

fn absent(name: &str) -> Violation {
    Violation::new(BODIES, format!("{name:?} without a body"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

    fn discovered(name: &str, version: &str, type_url: &str, value: &'static [u8]) -> Discovered {
        let resource = Some(Any { type_url: type_url.to_owned(), value: value.into() });
        Discovered { name: name.to_owned(), version: version.to_owned(), resource, ..Discovered::default() }
    }

    #[test]
    fn each_resource_of_a_change_has_a_version_and_a_body_of_its_type() {
        let absent = Discovered { resource: None, ..discovered("a", "1", "", b"") };
        let renewed = Discovered { ttl: Some(prost_types::Duration::default()), ..absent.clone() };
        for (resource, rules) in [
            (discovered("a", "1", CLUSTER, b"\x0a\x01a"), &[][..]),
            (renewed, &[]),
            (discovered("a", "", CLUSTER, b"\x0a\x01a"), &[VERSIONS]),
            (discovered("a", "1", "type.googleapis.com/google.protobuf.Empty", b""), &[BODIES]),
            (discovered("a", "1", CLUSTER, b"\xff"), &[BODIES]),
            (absent, &[BODIES]),
        ] {
            let response = DeltaDiscoveryResponse {
                type_url: CLUSTER.to_owned(),
                resources: vec![resource],
                ..DeltaDiscoveryResponse::default()
            };
            let found: Vec<_> = response.violations().iter().map(|violation| violation.rule).collect();
            assert_eq!(found, rules, "{response:?}");
        }
    }
}
