use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use mixer_adapter_core::framework::digest::Digest;

use crate::{collection::Collection, name::ResourceName, resource::Resource};

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
    /// The whole collection. An empty set deletes all resources.
    Full(Vec<Arc<Resource>>),
    /// The difference to the state before. Removing a missing resource is not an error.
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

    /// Creates full changes of the collections of these resources, and empty changes of Mixer's other collections.
    pub fn full_sets(resources: impl IntoIterator<Item = impl Into<Arc<Resource>>>) -> Vec<Self> {
        let mut sets: BTreeMap<Collection, Vec<Arc<Resource>>> =
            Collection::mixer().map(|collection| (collection, Vec::new())).collect();
        for resource in resources {
            let resource = resource.into();
            match sets.get_mut(&resource.collection) {
                Some(set) => set.push(resource),
                None => _ = sets.insert(resource.collection.clone(), vec![resource]),
            }
        }
        sets.into_iter()
            .map(|(collection, resources)| Self::new(collection, Content::Full(resources)))
            .collect()
    }
}

impl Change {
    /// Adds a later change of the same collection, so that this becomes the difference from the state before both to
    /// the state after them.
    pub(crate) fn then(&mut self, later: Self) {
        self.version = later.version;
        let Content::Partial { added: changed, removed: gone } = later.content else {
            self.content = later.content;
            return;
        };
        let touched: BTreeSet<&ResourceName> =
            changed.iter().map(|resource| &resource.name).chain(&gone).collect();
        let (Content::Full(resources) | Content::Partial { added: resources, .. }) = &mut self.content;
        resources.retain(|resource| !touched.contains(&resource.name));
        if let Content::Partial { removed, .. } = &mut self.content {
            removed.retain(|name| !touched.contains(name));
            removed.extend(gone);
        }
        let (Content::Full(resources) | Content::Partial { added: resources, .. }) = &mut self.content;
        resources.extend(changed);
    }

    /// Separates these new and changed resources from all other changes.
    pub(crate) fn split(&self, names: &HashSet<ResourceName>) -> (Self, Self) {
        let (separated, others) =
            self.content.resources().iter().cloned().partition(|resource| names.contains(&resource.name));
        let content = match &self.content {
            Content::Full(_) => Content::Full(others),
            Content::Partial { removed, .. } => Content::Partial { added: others, removed: removed.clone() },
        };
        let separated = Content::Partial { added: separated, removed: Vec::new() };
        let part =
            |content| Self { collection: self.collection.clone(), version: self.version.clone(), content };
        (part(content), part(separated))
    }

    /// Returns whether the change is empty.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(&self.content, Content::Partial { added, removed } if added.is_empty() && removed.is_empty())
    }
}

/// A digest of resources, in their order.
fn version(resources: &[Arc<Resource>]) -> String {
    let digest = Digest::of(resources.iter().map(|resource| resource.digest().as_bytes()));
    format!("{:016x}", digest.bits())
}
