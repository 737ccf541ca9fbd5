//! Views of nodes on a snapshot: shared by nodes with the same view, and stored while such a node is served.

use imbl::ordmap::DiffItem;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, OnceLock, Weak},
};

use parking_lot::Mutex;

use super::{
    super::{
        pushed::{Budget, Encodings},
        selector::NodeView,
    },
    Snapshot,
};
use crate::stream::source::entry::{Entries, Entry};

/// The maximum size of the encoded resources of all views of a state that are stored for other streams, in bytes.
/// Further ones are encoded for each push.
const MAX_ENCODED: usize = 64 << 20;

/// A snapshot as visible to a node: resources that have no selector or select the node. Resources that only invisible
/// resources refer to are excluded, unless their selector selects the node.
#[derive(Debug)]
pub(crate) struct View {
    base: Arc<Snapshot>,
    /// The views of the collections whose resources may refer to these.
    referring: Vec<Arc<View>>,
    state: OnceLock<Arc<Snapshot>>,
}

/// The key of a view: nodes share it if the same selectors select them and they see the same referring resources.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    selected: Vec<bool>,
    /// The addresses of snapshots that the view owns, which are unique while it exists.
    referring: Vec<[usize; 2]>,
}

/// The views of a snapshot.
#[derive(Debug)]
pub(super) struct Views {
    views: Mutex<HashMap<Key, Weak<View>>>,
    encoded: Budget,
}

impl Default for Views {
    fn default() -> Self {
        Self { views: Mutex::default(), encoded: Budget::new(MAX_ENCODED) }
    }
}

impl Views {
    /// Returns the view of that key, or a new view that its first user builds.
    fn get(&self, key: Key, new: impl FnOnce() -> View) -> Arc<View> {
        let mut views = self.views.lock();
        if let Some(view) = views.get(&key).and_then(Weak::upgrade) {
            return view;
        }
        if views.len() == views.capacity() {
            views.retain(|_, view| view.strong_count() > 0);
        }
        let view = Arc::new(new());
        views.insert(key, Arc::downgrade(&view));
        view
    }
}

impl View {
    /// Returns the view of a node. It shares unchanged parts of `former`, an earlier view of the same node.
    pub(in super::super) fn of(
        base: &Arc<Snapshot>,
        referring: Vec<Arc<Self>>,
        node: &NodeView,
        former: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let current = former.filter(|former| {
            let mut pairs = former.referring.iter().zip(&referring);
            Arc::ptr_eq(&former.base, base)
                && former.referring.len() == referring.len()
                && pairs.all(|(former, now)| Arc::ptr_eq(former, now))
        });
        if let Some(current) = current {
            return current.clone();
        }
        if base.selectors.is_empty() && referring.iter().all(|view| view.is_whole()) {
            let state = OnceLock::from(base.clone());
            return Arc::new(Self { base: base.clone(), referring, state });
        }
        let selected: Vec<bool> =
            base.selectors.values().map(|(selector, _)| selector.selects(node)).collect();
        let key = Key {
            selected: selected.clone(),
            referring: referring
                .iter()
                .map(|view| [Arc::as_ptr(&view.base).addr(), Arc::as_ptr(view.state()).addr()])
                .collect(),
        };
        let view = base.views.get(key, || Self { base: base.clone(), referring, state: OnceLock::new() });
        // Other views are not locked meanwhile.
        view.state.get_or_init(|| view.build(&selected, former));
        view
    }

    /// Returns the visible resources.
    pub(crate) fn state(&self) -> &Arc<Snapshot> {
        // It is built by then; otherwise nothing is visible.
        self.state.get_or_init(Arc::default)
    }

    /// Returns the views of the collections whose resources may refer to these.
    pub(in super::super) fn referring(&self) -> &[Arc<Self>] {
        &self.referring
    }

    fn is_whole(&self) -> bool {
        Arc::ptr_eq(self.state(), &self.base)
    }

    fn build(&self, selected: &[bool], former: Option<&Arc<Self>>) -> Arc<Snapshot> {
        let selected: HashMap<&str, bool> =
            self.base.selectors.keys().map(|text| &**text).zip(selected.iter().copied()).collect();
        let former = former.filter(|former| former.referring.len() == self.referring.len());
        let (start, names) = match former {
            Some(former) => (former.state(), self.changed_since(former)),
            None => (&self.base, self.base.entries().keys().cloned().collect()),
        };
        let mut next = start.successor();
        for name in names {
            match self.base.entries().get(&name).filter(|entry| self.shows(entry, &selected)) {
                Some(entry) => next.put(entry.clone()),
                None => next.remove(&name),
            }
        }
        if next.entries().ptr_eq(start.entries()) {
            start.clone()
        } else {
            next.encodings = Encodings::within(self.base.views.encoded.clone());
            Arc::new(next)
        }
    }

    /// Returns the names of resources that changed, or whose references changed or became visible or invisible.
    fn changed_since(&self, former: &Self) -> BTreeSet<Arc<str>> {
        let mut names = BTreeSet::new();
        for difference in former.base.entries().diff(self.base.entries()) {
            let (DiffItem::Add(name, _)
            | DiffItem::Remove(name, _)
            | DiffItem::Update { new: (name, _), .. }) = difference;
            names.insert(name.clone());
        }
        for (former, now) in former.referring.iter().zip(&self.referring) {
            if !Arc::ptr_eq(former, now) {
                references_changed(former.base.entries(), now.base.entries(), &mut names);
                references_changed(former.state().entries(), now.state().entries(), &mut names);
            }
        }
        names
    }

    fn shows(&self, entry: &Entry, selected: &HashMap<&str, bool>) -> bool {
        if let Some(text) = entry.selector_text() {
            return selected.get(text) == Some(&true);
        }
        let mut is_referred_to = false;
        for view in &self.referring {
            for referrer in view.base.referrers(entry.name()) {
                is_referred_to = true;
                if view.state().entries().contains_key(referrer) {
                    return true;
                }
            }
        }
        !is_referred_to
    }
}

/// Adds the names of changed references.
fn references_changed(old: &Entries, new: &Entries, names: &mut BTreeSet<Arc<str>>) {
    for difference in old.diff(new) {
        let (first, second) = match difference {
            DiffItem::Add(_, entry) | DiffItem::Remove(_, entry) => (entry, None),
            DiffItem::Update { old: (_, old), new: (_, new) } => (old, Some(new)),
        };
        for entry in [Some(first), second].into_iter().flatten() {
            names.extend(entry.references().iter().cloned());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        proto::envoy::config::core::v3::Node,
        stream::{body, raw_change::RawChange, raw_resource::RawResource, source::catalogue::Catalogue},
        types::Types,
    };
    use mixer_adapter_config::annotations::SELECTOR;

    const CLUSTERS: &str = "envoy.config.cluster.v3.Cluster";
    const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

    fn node(id: &str) -> NodeView {
        NodeView::of(&Node { id: id.to_owned(), ..Node::default() })
    }

    /// A resource for the node of that id; an empty one is for all.
    fn resource(name: &str, json: serde_json::Value, id: &str) -> Arc<RawResource> {
        let annotations = [(SELECTOR.to_owned(), format!("{{id: {id}}}"))];
        let annotations = if id.is_empty() { [].into() } else { annotations.into() };
        let body = body::of_any(&Types::default(), json).unwrap();
        Arc::new(RawResource { name: name.to_owned(), annotations, body, ..RawResource::default() })
    }

    /// A cluster whose endpoints have another name.
    fn cluster(name: &str, endpoints: &str, id: &str) -> Arc<RawResource> {
        let json = serde_json::json!({
            "@type": format!("type.googleapis.com/{CLUSTERS}"),
            "name": name, "type": "EDS", "edsClusterConfig": { "serviceName": endpoints },
        });
        resource(name, json, id)
    }

    fn endpoints(name: &str, id: &str) -> Arc<RawResource> {
        let json =
            serde_json::json!({ "@type": format!("type.googleapis.com/{ENDPOINTS}"), "clusterName": name });
        resource(name, json, id)
    }

    fn set(
        catalogue: &mut Catalogue,
        collection: &str,
        full: bool,
        resources: Vec<Arc<RawResource>>,
        removed: &[String],
    ) {
        catalogue.apply(&RawChange {
            collection: collection.into(),
            version: String::new(),
            full,
            resources,
            removed: removed.to_vec(),
        });
    }

    fn names(view: &View) -> Vec<&str> {
        view.state().resources().map(|resource| resource.name.as_str()).collect()
    }

    #[test]
    fn nodes_that_see_the_same_share_a_view_that_is_dropped_with_the_last_of_them() {
        let mut catalogue = Catalogue::default();
        set(&mut catalogue, CLUSTERS, true, vec![cluster("a", "a", ""), cluster("b", "b", "one")], &[]);
        let [one, other, third] =
            ["one", "other", "third"].map(|id| catalogue.seen_by(CLUSTERS, &node(id), None).unwrap());
        assert_eq!((names(&one), names(&other)), (vec!["a", "b"], vec!["a"]));
        assert!(Arc::ptr_eq(&other, &third));
        let weak = Arc::downgrade(&other);
        drop((other, third));
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn a_view_stays_the_same_while_nothing_changes_that_the_node_sees() {
        let mut catalogue = Catalogue::default();
        set(&mut catalogue, CLUSTERS, true, vec![cluster("a", "a", ""), cluster("b", "b", "one")], &[]);
        set(&mut catalogue, ENDPOINTS, true, vec![endpoints("a", ""), endpoints("b", "")], &[]);
        let see =
            |catalogue: &Catalogue, former| catalogue.seen_by(ENDPOINTS, &node("other"), former).unwrap();
        let first = see(&catalogue, None);
        assert_eq!(names(&first), ["a"]);
        assert!(Arc::ptr_eq(&first, &see(&catalogue, Some(&first))));
        set(&mut catalogue, ENDPOINTS, false, vec![endpoints("b", "one")], &[]);
        let second = see(&catalogue, Some(&first));
        assert!(Arc::ptr_eq(first.state(), second.state()), "with what is encoded");
        // A cluster that the node sees refers to the endpoints now.
        set(&mut catalogue, ENDPOINTS, false, vec![endpoints("b", "")], &[]);
        set(&mut catalogue, CLUSTERS, false, vec![cluster("c", "b", "")], &[]);
        assert_eq!(names(&see(&catalogue, Some(&second))), ["a", "b"]);
    }

    #[test]
    fn what_did_not_change_is_not_translated_to_v2_again() {
        let mut catalogue = Catalogue::default();
        set(&mut catalogue, CLUSTERS, true, vec![cluster("a", "a", ""), cluster("b", "b", "")], &[]);
        let v2 = |catalogue: &Catalogue| catalogue.snapshot("envoy.api.v2.Cluster").unwrap().clone();
        let first = v2(&catalogue);
        set(&mut catalogue, CLUSTERS, false, vec![cluster("b", "other", "")], &[]);
        set(&mut catalogue, CLUSTERS, false, vec![cluster("c", "c", "")], &["b".to_owned()]);
        let second = v2(&catalogue);
        assert!(Arc::ptr_eq(&first.entries()["a"], &second.entries()["a"]));
        let translated: Vec<_> = second.resources().map(|resource| &*resource.name).collect();
        assert_eq!(translated, ["a", "c"]);
        let mut scratch = Catalogue::default();
        set(&mut scratch, CLUSTERS, true, vec![cluster("a", "a", ""), cluster("c", "c", "")], &[]);
        assert_eq!(v2(&scratch).version(), second.version());
    }

    /// A change of clusters or of endpoints: a name, the node that it is for, the endpoints, and whether it is removed.
    fn changes() -> impl Strategy<Value = Vec<(bool, String, &'static str, String, bool)>> {
        let id = prop_oneof![Just(""), Just("one"), Just("'*'"), Just("o*")];
        let change = (any::<bool>(), "[a-d]", id, "[a-d]", any::<bool>());
        proptest::collection::vec(change, 1..30)
    }

    proptest! {
        #[test]
        fn a_view_that_follows_changes_is_the_one_of_the_last_state(changes in changes()) {
            let mut catalogue = Catalogue::default();
            set(&mut catalogue, CLUSTERS, true, vec![], &[]);
            set(&mut catalogue, ENDPOINTS, true, vec![], &[]);
            let mut former = BTreeMap::new();
            for (is_cluster, name, id, refers, is_removed) in changes {
                let collection = if is_cluster { CLUSTERS } else { ENDPOINTS };
                let resource = if is_cluster { cluster(&name, &refers, id) } else { endpoints(&name, id) };
                if is_removed {
                    set(&mut catalogue, collection, false, vec![], &[name]);
                } else {
                    set(&mut catalogue, collection, false, vec![resource], &[]);
                }
                // A copy without anything that was derived of former states.
                let mut scratch = Catalogue::default();
                for (collection, state) in catalogue.collections() {
                    let resources = state.unwrap().resources().cloned().map(Arc::new).collect();
                    set(&mut scratch, collection, true, resources, &[]);
                }
                for (id, collection) in [("one", CLUSTERS), ("one", ENDPOINTS), ("two", ENDPOINTS)] {
                    let view = catalogue.seen_by(collection, &node(id), former.get(&(id, collection))).unwrap();
                    let expected = scratch.seen_by(collection, &node(id), None).unwrap();
                    prop_assert_eq!(names(&view), names(&expected));
                    prop_assert_eq!(view.state().version(), expected.state().version());
                    former.insert((id, collection), view);
                }
            }
        }
    }
}
