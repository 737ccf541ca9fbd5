//! The resources of each source, to detect that it lost its rules or everything.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::{change::Change, collection::Collection, name::Kind, offer::Update, resources::Resources};

/// Mixer's resources that a source has, by collection.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    resources: BTreeMap<Collection, Resources>,
    /// Set while updates of the source are not applied.
    pub(crate) held_back: Option<HeldBack>,
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
        let (had_rules, had_some) = (self.has_rules(), !self.resources.is_empty());
        let changes = update.changes.iter().filter(|change| change.collection.role().is_some());
        for Change { collection, content, .. } in changes {
            let held = self.resources.entry(collection.clone()).or_default();
            *held = content.clone().after(std::mem::take(held));
        }
        self.resources.retain(|_, held| !held.is_empty());
        if self.resources.is_empty() {
            return had_some.then_some(Loss::Everything);
        }
        if self.has_rules() || self.held_back == Some(HeldBack::Lost) {
            self.held_back = None;
        }
        let is_included =
            |collection: &Collection| update.changes.iter().any(|change| change.collection == *collection);
        let whole = self.resources.keys().all(is_included);
        (had_rules && !self.has_rules()).then_some(Loss::Rules { whole })
    }

    fn has_rules(&self) -> bool {
        self.resources.keys().any(|collection| collection.role() == Some(Kind::Rule))
    }
}
