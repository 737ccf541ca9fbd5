//! MCP's resources and changes as the rest of the program has them, and back.

use std::{collections::BTreeMap, sync::Arc};

use super::{Change, Fault, Rejection, Resource, body, name};
use crate::{Collection, Finding, Kind, ResourceName, Types, source::Content};

/// A change as an update has it. The rejection names the resources that cannot be read.
pub(super) fn to_update(change: &Change, source: &str) -> Result<crate::source::Change, Rejection> {
    let collection = Collection::new(&change.collection);
    let mut faults = Vec::new();
    let mut resources = Vec::with_capacity(change.resources.len());
    for resource in &change.resources {
        match body::to_spec(&resource.body) {
            Ok((spec, unknown)) => {
                let kind = kind(&collection, Some(resource));
                let name = resource_name(&resource.name, kind);
                let mut read = crate::Resource::new(name, collection.clone(), spec, source);
                read.labels.clone_from(&resource.labels);
                read.annotations.clone_from(&resource.annotations);
                read.unknown = unknown;
                resources.push(read);
            }
            Err(reason) => faults.push(Fault { resource: resource.name.clone(), reason }),
        }
    }
    if !faults.is_empty() {
        return Err(Rejection { faults });
    }
    let removed = || change.removed.iter().map(|name| resource_name(name, kind(&collection, None))).collect();
    let content = match change.full {
        true => Content::Full(resources),
        false => Content::Partial { added: resources, removed: removed() },
    };
    Ok(crate::source::Change { collection, version: change.version.clone(), content })
}

/// Why an update was refused, as far as it concerns that collection: its own resources are named, so that they can be skipped;
/// faults elsewhere are told in full.
pub(super) fn to_rejection(collection: &str, faults: &[crate::Fault]) -> Rejection {
    let own = Collection::new(collection).kind();
    let errors = faults.iter().filter(|fault| fault.is_error());
    let faults = errors.map(|fault| match &fault.resource {
        Some(name) if Some(name.kind()) == own.as_ref() => {
            let field = if fault.field.is_empty() { String::new() } else { format!("{}: ", fault.field) };
            Fault { resource: full_name(name), reason: format!("{field}{}", fault.reason) }
        }
        _ => Fault { resource: String::new(), reason: fault.to_string() },
    });
    let faults: Vec<_> = faults.collect();
    if faults.is_empty() { Rejection::whole("it was refused without a reason") } else { Rejection { faults } }
}

/// A change as it can be served, without the resources that cannot, and why they cannot.
pub(super) fn of_update(types: &Types, change: &crate::source::Change) -> (Change, Vec<crate::Fault>) {
    let (full, resources, removed) = match &change.content {
        Content::Full(resources) => (true, resources, &Vec::new()),
        Content::Partial { added, removed } => (false, added, removed),
    };
    let mut faults = Vec::new();
    let mut served = Vec::with_capacity(resources.len());
    let mut names = BTreeMap::new();
    for resource in resources {
        if let Some(first) = names.insert(&resource.name, &resource.origin) {
            faults.push(resource.error("", format!("is given twice; the first is at {first}")));
            names.insert(&resource.name, first);
            continue;
        }
        match of_resource(types, resource) {
            Ok((fit, deprecated)) => {
                served.push(Arc::new(fit));
                faults.extend(deprecated.iter().map(|finding| finding.of(resource, "")));
            }
            Err(fault) => faults.push(fault),
        }
    }
    let change = Change {
        collection: change.collection.as_str().into(),
        version: change.version.clone(),
        full,
        resources: served,
        removed: removed.iter().map(full_name).collect(),
    };
    (change, faults)
}

fn of_resource(types: &Types, resource: &crate::Resource) -> Result<(Resource, Vec<Finding>), crate::Fault> {
    let name = full_name(&resource.name);
    name::check(resource.collection.as_str(), &name)
        .map_err(|reason| resource.error("", format!("cannot be served by MCP: {reason}")))?;
    let body = body::of_spec(types, &resource.collection, resource.spec.clone());
    let (body, deprecated) = body.map_err(|error| resource.error(&error.field, error.reason))?;
    let fit = Resource {
        name,
        labels: resource.labels.clone(),
        annotations: resource.annotations.clone(),
        body,
        ..Resource::default()
    };
    Ok((fit, deprecated))
}

/// What resources of a collection are; those of collections nobody knows are called by the type of their bodies.
fn kind(collection: &Collection, resource: Option<&Resource>) -> Kind {
    let unknown = || Kind::from(resource.map_or("", |resource| resource.body.message_name()));
    collection.kind().unwrap_or_else(unknown)
}

/// The last segment is the name, all before it the namespace (docs/behaviour/mcp.md#resource-names).
fn resource_name(name: &str, kind: Kind) -> ResourceName {
    let (namespace, name) = name.rsplit_once('/').unwrap_or(("", name));
    ResourceName::new(name, kind, namespace)
}

fn full_name(name: &ResourceName) -> String {
    match name.namespace() {
        "" => name.name().to_owned(),
        namespace => format!("{namespace}/{}", name.name()),
    }
}
