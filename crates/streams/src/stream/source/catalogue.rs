use std::{collections::BTreeMap, sync::Arc};

use super::{
    references::referrers,
    selector::NodeView,
    snapshot::{Snapshot, views::View},
};
use crate::stream::raw_change::RawChange;
use mixer_adapter_config::envoy;

/// The served collections at one time.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    collections: BTreeMap<Arc<str>, Option<Arc<Snapshot>>>,
    open: bool,
    empty: Arc<Snapshot>,
}

impl Catalogue {
    /// Creates a catalogue of these collections. Requests for them wait until the first change of each.
    pub fn of<C: Into<Arc<str>>>(collections: impl IntoIterator<Item = C>) -> Self {
        Self {
            collections: collections.into_iter().map(|name| (name.into(), None)).collect(),
            ..Self::default()
        }
    }

    /// Answers requests for unknown collections with an empty state instead of ending the stream as Galley does: the
    /// sinks of Istio are not ready before every collection was answered (docs/behaviour/mcp.md#unknown-collections).
    /// Until the first change they wait, because an empty answer would delete the resources of sinks.
    #[must_use]
    pub fn open(self) -> Self {
        Self { open: true, ..self }
    }

    /// Applies a change; its collection need not be known. Returns whether the content has changed.
    pub fn apply(&mut self, change: &RawChange) -> bool {
        let slot = self.collections.entry(change.collection.clone()).or_default();
        let next = slot.as_deref().unwrap_or(&self.empty).after(change);
        if slot.as_ref().is_some_and(|current| current.version() == next.version()) {
            return false;
        }
        *slot = Some(Arc::new(next));
        true
    }

    /// Removes the state of a collection, as before its first change.
    pub fn clear(&mut self, collection: &str) {
        if let Some(slot) = self.collections.get_mut(collection) {
            *slot = None;
        }
    }

    /// Returns whether requests for a collection are answered.
    pub(crate) fn serves(&self, collection: &str) -> bool {
        self.open || self.collections.contains_key(collection)
    }

    /// Returns the state of a collection, if it is known. A type of version 2 of Envoy's API has the resources of its
    /// successor.
    pub fn snapshot(&self, collection: &str) -> Option<&Arc<Snapshot>> {
        match (self.collections.get(collection), envoy::successor(collection)) {
            (Some(slot), _) => slot.as_ref(),
            (None, Some(successor)) => self.snapshot(successor).map(|state| state.v2()),
            (None, None) => (self.open && self.is_filled()).then_some(&self.empty),
        }
    }

    /// Returns the view of a node on a collection. Endpoints and routes without a selector are visible if nothing
    /// refers to them, or if a visible cluster, listener or scoped route does. `former` is an earlier view of the same
    /// node.
    pub(crate) fn seen_by(
        &self,
        collection: &str,
        node: &NodeView,
        former: Option<&Arc<View>>,
    ) -> Option<Arc<View>> {
        let state = self.snapshot(collection)?;
        let referring = referrers(collection).iter().enumerate().filter_map(|(place, referrer)| {
            self.seen_by(referrer, node, former.and_then(|former| former.referring().get(place)))
        });
        let referring = referring.collect();
        Some(View::of(state, referring, node, former))
    }

    /// Returns whether a change was applied.
    pub(crate) fn is_filled(&self) -> bool {
        self.collections.values().any(Option::is_some)
    }

    /// Returns the collections, in the order of their names.
    pub fn collections(&self) -> impl Iterator<Item = (&Arc<str>, Option<&Arc<Snapshot>>)> {
        self.collections.iter().map(|(name, slot)| (name, slot.as_ref()))
    }
}
