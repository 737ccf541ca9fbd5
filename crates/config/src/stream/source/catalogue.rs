use std::{collections::BTreeMap, sync::Arc};

use super::{NodeView, Snapshot, View, references::referrers};
use crate::{envoy_v2, stream::RawChange};

/// What a source serves at one time.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    collections: BTreeMap<Arc<str>, Option<Arc<Snapshot>>>,
    open: bool,
    empty: Arc<Snapshot>,
}

impl Catalogue {
    /// Serves these collections. Requests for them wait until the first change of each.
    pub fn of<C: Into<Arc<str>>>(collections: impl IntoIterator<Item = C>) -> Self {
        Self {
            collections: collections.into_iter().map(|name| (name.into(), None)).collect(),
            ..Self::default()
        }
    }

    /// Answers requests for unknown collections with an empty state instead of ending the stream as Galley does: the
    /// sinks of Istio are not ready before every collection was answered (docs/behaviour/mcp.md#unknown-collections). Until
    /// something was taken in they wait: to answer nothing would delete what sinks have.
    #[must_use]
    pub fn open(self) -> Self {
        Self { open: true, ..self }
    }

    /// Takes a change in; its collection need not be known. Returns whether the content is another now.
    pub fn apply(&mut self, change: &RawChange) -> bool {
        let slot = self.collections.entry(change.collection.clone()).or_default();
        let next = slot.as_deref().unwrap_or(&self.empty).after(change);
        if slot.as_ref().is_some_and(|current| current.version() == next.version()) {
            return false;
        }
        *slot = Some(Arc::new(next));
        true
    }

    /// Forgets what a collection holds, as at the start.
    pub fn clear(&mut self, collection: &str) {
        if let Some(slot) = self.collections.get_mut(collection) {
            *slot = None;
        }
    }

    /// Whether requests for a collection are answered.
    pub(crate) fn serves(&self, collection: &str) -> bool {
        self.open || self.collections.contains_key(collection)
    }

    /// What a collection holds, if that is known yet. A type of version 2 of Envoy's API has the resources of its successor.
    pub fn snapshot(&self, collection: &str) -> Option<&Arc<Snapshot>> {
        match (self.collections.get(collection), envoy_v2::successor(collection)) {
            (Some(slot), _) => slot.as_ref(),
            (None, Some(successor)) => self.snapshot(successor).map(|state| state.v2()),
            (None, None) => (self.open && self.is_filled()).then_some(&self.empty),
        }
    }

    /// What a collection holds for a node. Endpoints and routes that have no selector are those of the clusters, listeners and scoped
    /// routes that the node sees, and those that nothing refers to. The `former` view is an earlier one of the same node.
    pub(crate) fn seen_by(
        &self,
        collection: &str,
        node: &NodeView,
        former: Option<&Arc<View>>,
    ) -> Option<Arc<View>> {
        let state = self.snapshot(collection)?;
        let known = |place| former.and_then(|former: &Arc<View>| former.referring().get(place));
        let referring = referrers(collection).iter().enumerate();
        let referring =
            referring.filter_map(|(place, referrer)| self.seen_by(referrer, node, known(place))).collect();
        Some(View::of(state, referring, node, former))
    }

    /// Whether anything was taken in yet.
    pub(crate) fn is_filled(&self) -> bool {
        self.collections.values().any(Option::is_some)
    }

    /// The collections, in the order of their names.
    pub fn collections(&self) -> impl Iterator<Item = (&Arc<str>, Option<&Arc<Snapshot>>)> {
        self.collections.iter().map(|(name, slot)| (name, slot.as_ref()))
    }
}
