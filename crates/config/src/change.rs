use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use crate::{collection::Collection, name::ResourceName, resource::Resource, resources::Resources};

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
    Full(Resources),
    /// The difference to the state before. Removing a missing resource is not an error.
    Partial {
        /// New and changed resources.
        added: Vec<Arc<Resource>>,
        /// Deleted resources.
        removed: Vec<ResourceName>,
    },
}

impl Content {
    /// Iterates over the resources that are new or changed, or the whole collection.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let (all, added) = match self {
            Self::Full(resources) => (Some(resources), &[][..]),
            Self::Partial { added, .. } => (None, &added[..]),
        };
        all.into_iter().flat_map(Resources::iter).chain(added)
    }

    /// Returns the number of these resources.
    pub fn count(&self) -> usize {
        match self {
            Self::Full(resources) => resources.len(),
            Self::Partial { added, .. } => added.len(),
        }
    }

    /// Returns the resources of the collection after the change.
    pub(crate) fn after(self, mut before: Resources) -> Resources {
        match self {
            Self::Full(resources) => resources,
            Self::Partial { added, removed } => {
                let touched = removed.iter().chain(added.iter().map(|resource| &resource.name));
                before.remove(touched);
                added.into_iter().for_each(|resource| before.insert(resource));
                before
            }
        }
    }
}

impl Change {
    /// Creates a change whose version is made of the digests of its resources.
    pub fn new(collection: Collection, content: Content) -> Self {
        let digests = content.resources().map(|resource| resource.digest().bits());
        Self::of_digests(collection, digests.fold(0, u64::wrapping_add), content)
    }

    /// Creates a change whose resources have digests with that sum.
    pub(crate) fn of_digests(collection: Collection, sum: u64, content: Content) -> Self {
        Self { collection, version: format!("{sum:016x}"), content }
    }

    /// Creates full changes of the collections of these resources, and empty changes of Mixer's other collections.
    pub fn full_sets(resources: impl IntoIterator<Item = impl Into<Arc<Resource>>>) -> Vec<Self> {
        let mut sets: BTreeMap<Collection, Resources> =
            Collection::mixer().map(|collection| (collection, Resources::default())).collect();
        for resource in resources {
            let resource = resource.into();
            sets.entry(resource.collection.clone()).or_default().insert(resource);
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
        match (&mut self.content, later.content) {
            (Content::Full(resources), later) => *resources = later.after(std::mem::take(resources)),
            (earlier, later @ Content::Full(_)) => *earlier = later,
            (Content::Partial { added, removed }, Content::Partial { added: changed, removed: gone }) => {
                let touched: BTreeSet<&ResourceName> =
                    changed.iter().map(|resource| &resource.name).chain(&gone).collect();
                added.retain(|resource| !touched.contains(&resource.name));
                removed.retain(|name| !touched.contains(name));
                added.extend(changed);
                removed.extend(gone);
            }
        }
    }

    /// Separates these new and changed resources from all other changes.
    pub(crate) fn split(&self, names: &HashSet<ResourceName>) -> (Self, Self) {
        let (separated, others): (Vec<_>, Vec<_>) =
            self.content.resources().cloned().partition(|resource| names.contains(&resource.name));
        let content = match &self.content {
            Content::Full(_) => Content::Full(others.into_iter().collect()),
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
