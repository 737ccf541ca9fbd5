use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use super::nack::ResourceError;
use crate::{
    proto::istio::mcp::v1alpha1::Resources,
    stream::{name, raw_resource::RawResource},
};

/// A push of one collection, with its valid resources.
#[derive(Debug, Default)]
pub(super) struct Push {
    pub(super) version: String,
    pub(super) nonce: String,
    pub(super) incremental: bool,
    /// The valid resources by name.
    pub(super) resources: BTreeMap<String, RawResource>,
    pub(super) removed: BTreeSet<String>,
    /// The faults of the others.
    pub(super) faults: Vec<ResourceError>,
    /// The names of the others.
    pub(super) bad: BTreeSet<String>,
}

impl Push {
    pub(super) fn read(message: Resources) -> Self {
        let mut push = Self {
            version: message.system_version_info,
            nonce: message.nonce,
            incremental: message.incremental,
            ..Self::default()
        };
        let normal = |name: &str| name::normal(&message.collection, name).into_owned();
        let mut named = BTreeMap::new();
        for (place, resource) in message.resources.into_iter().enumerate() {
            if let Some(metadata) = &resource.metadata {
                named.insert(normal(&metadata.name), metadata.name.clone());
            }
            match RawResource::read(&message.collection, resource, place) {
                Ok(resource) => push.add(resource),
                Err(fault) => push.fault(fault),
            }
        }
        // A full push has no removals.
        if push.incremental {
            // A source that knows a resource by another spelling of its name removes the one and adds the other: it
            // stays.
            let removed = message
                .removed_resources
                .iter()
                .filter(|name| named.get(&normal(name)).is_none_or(|given| given == *name));
            push.removed = removed.map(|name| normal(name)).collect();
        }
        push
    }

    fn add(&mut self, resource: RawResource) {
        match self.resources.entry(resource.name.clone()) {
            Entry::Vacant(place) => _ = place.insert(resource),
            Entry::Occupied(first) if *first.get() == resource => {}
            Entry::Occupied(_) => self.fault(ResourceError {
                resource: resource.name,
                text: "it comes twice, with different content".to_owned(),
            }),
        }
    }

    fn fault(&mut self, fault: ResourceError) {
        self.bad.insert(fault.resource.clone());
        self.faults.push(fault);
    }
}
