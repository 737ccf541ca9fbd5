use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use imbl::{OrdMap, ordmap::DiffItem};

use super::push::Push;
use crate::stream::raw_resource::RawResource;

/// A state of a collection. It outlives streams; copies share their equal parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    resources: OrdMap<String, Arc<RawResource>>,
    version: String,
    generation: u64,
}

/// The changes that a push would make.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) changed: Vec<Arc<RawResource>>,
    pub(super) removed: Vec<String>,
}

impl Difference {
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

impl Held {
    pub(super) fn resources(&self) -> impl ExactSizeIterator<Item = &Arc<RawResource>> {
        self.resources.values()
    }

    /// Returns the source's version of the collection.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Returns a number that changes with the state; a stream may send increments while it knows the newest.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.resources.contains_key(name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Returns the versions by name.
    pub(super) fn versions(&self) -> BTreeMap<String, String> {
        self.resources.values().map(|resource| (resource.name.clone(), resource.version.clone())).collect()
    }

    /// Compares a push with the held state. A resource has changed if any part of it has changed. Versions may repeat:
    /// Galley counts from the beginning after a restart.
    ///
    /// An invalid resource keeps its held version, and does not count as removed.
    pub(super) fn compare(&self, push: Push) -> Difference {
        let gone: BTreeSet<String> = if push.incremental {
            push.removed
        } else {
            self.resources
                .keys()
                .filter(|name| !push.resources.contains_key(*name) && !push.bad.contains(*name))
                .cloned()
                .collect()
        };
        let changed = push.resources.into_values().filter(|resource| {
            let held = self.resources.get(&resource.name);
            held.is_none_or(|held| **held != *resource) && !gone.contains(&resource.name)
        });
        Difference {
            changed: changed.map(|resource| Arc::new(resource.detached())).collect(),
            removed: gone.into_iter().filter(|name| self.resources.contains_key(name)).collect(),
        }
    }

    /// Returns the changes from this state to another one.
    pub(super) fn difference_to(&self, other: &Self) -> Difference {
        let mut difference = Difference::default();
        for item in self.resources.diff(&other.resources) {
            match item {
                DiffItem::Add(_, new) | DiffItem::Update { new: (_, new), .. } => {
                    difference.changed.push(new.clone());
                }
                DiffItem::Remove(name, _) => difference.removed.push(name.clone()),
            }
        }
        difference
    }

    /// Applies a change.
    pub(super) fn apply(&mut self, difference: Difference, version: String) {
        self.version = version;
        if difference.is_empty() {
            return;
        }
        self.generation += 1;
        for name in &difference.removed {
            self.resources.remove(name);
        }
        let changed = difference.changed.into_iter();
        self.resources.extend(changed.map(|resource| (resource.name.clone(), resource)));
    }
}
