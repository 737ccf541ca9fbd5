use std::{collections::HashSet, sync::Arc};

use imbl::OrdMap;

use crate::{name::ResourceName, resource::Resource};

/// The resources of a collection, in the order of their names. Clones share them: a comparison visits only differences.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    by_name: OrdMap<ResourceName, Arc<Resource>>,
    /// Resources with the name of an earlier resource.
    repeated: Vec<Arc<Resource>>,
}

impl Resources {
    /// Returns the number of resources.
    pub fn len(&self) -> usize {
        self.by_name.len() + self.repeated.len()
    }

    /// Returns whether there are no resources.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Iterates over the resources; those with a repeated name are the last.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_name.values().chain(&self.repeated)
    }

    /// The first resource of each name.
    pub(crate) fn by_name(&self) -> &OrdMap<ResourceName, Arc<Resource>> {
        &self.by_name
    }

    /// Iterates over the resources with a repeated name, each with the first resource of that name.
    pub(crate) fn repeated(&self) -> impl Iterator<Item = (&Arc<Resource>, &Arc<Resource>)> {
        self.repeated.iter().filter_map(|resource| Some((resource, self.by_name.get(&resource.name)?)))
    }

    /// Adds a resource. The first resource of a name stays the first.
    pub(crate) fn insert(&mut self, resource: Arc<Resource>) {
        if self.by_name.contains_key(&resource.name) {
            self.repeated.push(resource);
        } else {
            self.by_name.insert(resource.name.clone(), resource);
        }
    }

    /// Removes the resources of these names.
    pub(crate) fn remove<'n>(&mut self, names: impl IntoIterator<Item = &'n ResourceName>) {
        let names: HashSet<_> = names.into_iter().collect();
        for name in &names {
            // A removal without effect would copy a part of the map.
            if self.by_name.contains_key(*name) {
                self.by_name.remove(*name);
            }
        }
        self.repeated.retain(|resource| !names.contains(&resource.name));
    }
}

impl FromIterator<Arc<Resource>> for Resources {
    fn from_iter<I: IntoIterator<Item = Arc<Resource>>>(resources: I) -> Self {
        let mut all = Self::default();
        resources.into_iter().for_each(|resource| all.insert(resource));
        all
    }
}
