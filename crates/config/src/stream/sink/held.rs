use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use imbl::OrdMap;

use super::push::Push;
use crate::stream::RawResource;

/// A state of a collection. It outlives streams; copies share what is equal in them.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    resources: OrdMap<String, Arc<RawResource>>,
    version: String,
    generation: u64,
}

/// What a push would change.
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

    /// The version of the collection, as its source called it.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Moves with every change; a stream may send increments while it knows the newest.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.resources.contains_key(name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Name to version.
    pub(super) fn versions(&self) -> BTreeMap<String, String> {
        self.resources.values().map(|resource| (resource.name.clone(), resource.version.clone())).collect()
    }

    /// Compares a push with what is held. A resource changed if anything about it did: an equal version says nothing when the
    /// source has restarted and counts from the beginning, as Galley does.
    ///
    /// A bad resource stays as it is held, and is not taken for gone.
    pub(super) fn compare(&self, push: Push) -> Difference {
        let gone: BTreeSet<String> = if push.incremental {
            push.removed
        } else {
            let gone = |name: &&String| !push.resources.contains_key(*name) && !push.bad.contains(*name);
            self.resources.keys().filter(gone).cloned().collect()
        };
        let differs = |resource: &RawResource| {
            self.resources.get(&resource.name).is_none_or(|held| **held != *resource)
        };
        let changed = push.resources.into_values();
        let changed = changed.filter(|resource| differs(resource) && !gone.contains(&resource.name));
        Difference {
            changed: changed.map(|resource| Arc::new(resource.detached())).collect(),
            removed: gone.into_iter().filter(|name| self.resources.contains_key(name)).collect(),
        }
    }

    /// Returns the way from this state to another one.
    pub(super) fn difference_to(&self, other: &Self) -> Difference {
        let differs = |resource: &&Arc<RawResource>| self.resources.get(&resource.name) != Some(*resource);
        let is_gone = |name: &&String| !other.resources.contains_key(*name);
        Difference {
            changed: other.resources.values().filter(differs).cloned().collect(),
            removed: self.resources.keys().filter(is_gone).cloned().collect(),
        }
    }

    /// Takes a change over.
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
