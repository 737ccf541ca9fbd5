//! The resources of each source, to detect that it lost its rules or everything.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use tokio::time::Instant;

use crate::{
    change::{Change, Content},
    collection::Collection,
    name::{Kind, ResourceName},
    offer::Update,
    resource::Resource,
};

/// Mixer's resources that a source has, by collection.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    names: BTreeMap<Collection, Held>,
    /// Set while updates of the source are not applied.
    pub(crate) held_back: Option<HeldBack>,
}

/// The resources that a source has of a collection.
#[derive(Debug, Default)]
struct Held {
    /// Those of the last full update, until there is a partial one.
    whole: Vec<Arc<Resource>>,
    /// The names of all others.
    names: HashSet<ResourceName>,
}

/// The reason why updates of a source are not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldBack {
    /// It has lost its rules, and until then may lose the rest.
    Until(Instant),
    /// It has lost everything.
    Lost,
}

/// The resources that a source has lost with an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// All its resources.
    Everything,
    /// All its rules.
    Rules {
        /// Whether the update has all other resources of the source, too, so that no more can follow.
        whole: bool,
    },
}

impl Holdings {
    /// Records an update, and returns its loss. Releases the source if the lost resources are there again.
    pub(crate) fn update(&mut self, update: &Update) -> Option<Loss> {
        let (had_rules, had_some) = (self.has_rules(), !self.names.is_empty());
        for change in &update.changes {
            self.record(change);
        }
        if self.names.is_empty() {
            return had_some.then_some(Loss::Everything);
        }
        if self.has_rules() || self.held_back == Some(HeldBack::Lost) {
            self.held_back = None;
        }
        let is_included =
            |collection: &Collection| update.changes.iter().any(|change| change.collection == *collection);
        let whole = self.names.keys().all(is_included);
        (had_rules && !self.has_rules()).then_some(Loss::Rules { whole })
    }

    fn record(&mut self, Change { collection, content, .. }: &Change) {
        if collection.role().is_none() {
            return;
        }
        let Held { whole, names } = self.names.entry(collection.clone()).or_default();
        match content {
            Content::Full(resources) => {
                whole.clone_from(resources);
                names.clear();
            }
            Content::Partial { added, removed } => {
                names.extend(whole.drain(..).map(|resource| resource.name.clone()));
                for name in removed {
                    names.remove(name);
                }
                names.extend(added.iter().map(|resource| resource.name.clone()));
            }
        }
        self.names.retain(|_, held| !held.whole.is_empty() || !held.names.is_empty());
    }

    fn has_rules(&self) -> bool {
        self.names.keys().any(|collection| collection.role() == Some(Kind::Rule))
    }
}
