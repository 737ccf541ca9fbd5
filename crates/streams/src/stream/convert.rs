//! Decodes pushed resources, and encodes served ones.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use super::{
    body, name,
    raw_change::RawChange,
    raw_resource::RawResource,
    source::{lifetime, selector::Selector},
};
use crate::{envoy_v2::translate, types::Types};
use mixer_adapter_config::{
    Change, Collection, Content, Finding, Kind, Resource, ResourceName, ValidationError, envoy,
};

/// Decodes the resources of a change. Resources that cannot be decoded are omitted and reported as faults.
pub(crate) fn decode(change: &RawChange, source: &str) -> (Change, Vec<ValidationError>) {
    let collection = Collection::new(&change.collection);
    let mut faults = Vec::new();
    let mut resources = Vec::with_capacity(change.resources.len());
    for resource in &change.resources {
        let name = resource_name(&resource.name, kind(&collection, Some(resource)));
        // Mixer refuses bodies that it cannot decode, whatever else it skips.
        let decoded = match collection.role() {
            Some(_) => body::to_known_spec(&resource.body),
            None => body::to_spec(&resource.body),
        };
        match decoded {
            Ok((spec, unknown)) => {
                let mut read = Resource::new(name, collection.clone(), spec, source);
                read.created = resource.created;
                read.labels.clone_from(&resource.labels);
                read.annotations.clone_from(&resource.annotations);
                read.unknown = unknown;
                resources.push(Arc::new(read));
            }
            Err(error) => faults.push(ValidationError::error(error.to_string()).of(name)),
        }
    }
    let content = if change.full {
        Content::Full(resources.into_iter().collect())
    } else {
        let removed = change.removed.iter().map(|name| resource_name(name, kind(&collection, None)));
        Content::Partial { added: resources, removed: removed.collect() }
    };
    (Change { collection, version: change.version.clone(), content }, faults)
}

/// Encodes the resources of a change. Resources that cannot be encoded are omitted and reported as faults.
pub(in crate::stream) fn encode(types: &Types, change: &Change) -> (RawChange, Vec<ValidationError>) {
    let (full, removed) = match &change.content {
        Content::Full(_) => (true, &[] as &[ResourceName]),
        Content::Partial { removed, .. } => (false, &removed[..]),
    };
    let (served, faults) = encode_resources(types, change.content.resources().map(|known| &**known));
    let change = RawChange {
        collection: change.collection.as_str().into(),
        version: change.version.clone(),
        full,
        resources: served,
        removed: removed.iter().map(name::full_name).collect(),
    };
    (change, faults)
}

/// Returns the faults for which resources that are not Mixer's own, such as Envoy's, cannot be served to other
/// programs.
pub fn check(types: &Types, resources: &[Arc<Resource>]) -> Vec<ValidationError> {
    let served = resources.iter().filter(|resource| resource.role().is_none());
    encode_resources(types, served.map(|resource| &**resource)).1
}

/// Encodes resources, and returns the faults: resources without an encoding, and repeated names.
fn encode_resources<'r>(
    types: &Types,
    resources: impl Iterator<Item = &'r Resource>,
) -> (Vec<Arc<RawResource>>, Vec<ValidationError>) {
    let (mut served, mut faults, mut names) = (Vec::new(), Vec::new(), BTreeMap::new());
    for resource in resources {
        match names.entry((&resource.collection, &resource.name)) {
            Entry::Vacant(place) => _ = place.insert(&resource.origin),
            Entry::Occupied(first) => {
                faults.push(resource.error("", format!("is given twice; the first is at {}", first.get())));
                continue;
            }
        }
        match encode_resource(types, resource) {
            Ok((fit, deprecated)) => {
                served.push(Arc::new(fit));
                faults.extend(deprecated.iter().map(|finding| resource.finding(finding, "")));
            }
            Err(fault) => faults.push(fault),
        }
    }
    (served, faults)
}

fn encode_resource(
    types: &Types,
    resource: &Resource,
) -> Result<(RawResource, Vec<Finding>), ValidationError> {
    let name = name::full_name(&resource.name);
    name::check(resource.collection.as_str(), &name)
        .map_err(|reason| resource.error("", format!("cannot be served by MCP: {reason}")))?;
    Selector::of(&resource.annotations).map_err(|error| resource.error("", error.to_string()))?;
    lifetime::ttl(&resource.annotations).map_err(|error| resource.error("", error.to_string()))?;
    lifetime::aliases(&resource.annotations).map_err(|error| resource.error("", error.to_string()))?;
    let body = body::of_spec(types, &resource.collection, resource.spec.clone());
    let (mut body, deprecated) = body.map_err(|error| resource.error(&error.field, error.reason))?;
    if envoy::is_v2(&body.type_url) && !envoy::is_v2(resource.collection.as_str()) {
        body = translate::to_v3(&body).map_err(|error| resource.error("", error.to_string()))?;
    }
    let fit = RawResource {
        name,
        created: resource.created,
        labels: resource.labels.clone(),
        annotations: resource.annotations.clone(),
        body,
        ..RawResource::default()
    };
    Ok((fit, deprecated))
}

/// Returns the kind of the resources of a collection; in unknown collections, the message name of the body.
fn kind(collection: &Collection, resource: Option<&RawResource>) -> Kind {
    collection
        .kind()
        .unwrap_or_else(|| Kind::from(resource.map_or("", |resource| resource.body.message_name())))
}

/// Splits a name: the last segment is the name, all before it the namespace (docs/behaviour/mcp.md#resource-names).
fn resource_name(name: &str, kind: Kind) -> ResourceName {
    let (namespace, name) = name.rsplit_once('/').unwrap_or(("", name));
    ResourceName::new(name, kind, namespace)
}
