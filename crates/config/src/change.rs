use std::{collections::BTreeMap, sync::Arc};

use sha2::{Digest as _, Sha256};

use super::{Collection, Resource, ResourceName};

/// A change of one collection.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The collection.
    pub collection: Collection,
    /// The source's version of the collection after the change; equal states have equal versions.
    pub version: String,
    /// What changed.
    pub content: Content,
}

/// What changed in a collection.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The whole collection. An empty one deletes everything.
    Full(Vec<Arc<Resource>>),
    /// The difference to the state before. Removing what does not exist is no error.
    Partial {
        /// New and changed resources.
        added: Vec<Arc<Resource>>,
        /// Deleted resources.
        removed: Vec<ResourceName>,
    },
}

impl Content {
    /// The resources that are new or changed.
    pub fn resources(&self) -> &[Arc<Resource>] {
        let (Self::Full(resources) | Self::Partial { added: resources, .. }) = self;
        resources
    }
}

impl Change {
    /// Creates a change whose version is a digest of its resources.
    pub fn new(collection: Collection, content: Content) -> Self {
        Self { collection, version: version(content.resources()), content }
    }

    /// Creates full changes of the collections that these resources belong to, and empty ones of Mixer's other collections.
    pub fn full_sets(resources: Vec<Resource>) -> Vec<Self> {
        let mut sets: BTreeMap<Collection, Vec<Arc<Resource>>> =
            Collection::mixer().map(|collection| (collection, Vec::new())).collect();
        for resource in resources {
            sets.entry(resource.collection.clone()).or_default().push(Arc::new(resource));
        }
        sets.into_iter()
            .map(|(collection, resources)| Self::new(collection, Content::Full(resources)))
            .collect()
    }
}

/// A digest of resources, in their order.
fn version(resources: &[Arc<Resource>]) -> String {
    let mut digest = Sha256::new();
    for resource in resources {
        let content = (&resource.labels, &resource.annotations, &resource.spec);
        digest.update(resource.name.to_string());
        // Writing to a digest cannot fail.
        let _ = serde_json::to_writer(&mut digest, &content);
    }
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
