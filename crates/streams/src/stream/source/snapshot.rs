pub(crate) mod views;

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::once,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use imbl::{OrdMap, OrdSet, ordmap::DiffItem};
use serde_json::Value as Json;

use super::{
    derived::Derived,
    entry::{Entries, Entry},
    pushed::{Encoding, Encodings},
    selector::Selector,
};
use views::Views;

use crate::stream::{name, raw_change::RawChange, raw_resource::RawResource, version::ContentVersion, xdstp};

/// Selectors by their texts, with the numbers of resources that have them.
type Selectors = OrdMap<Arc<str>, (Arc<Selector>, usize)>;

/// Names that resources refer to, and the names of these resources.
type Referrers = OrdMap<Arc<str>, OrdSet<Arc<str>>>;

/// One state of a collection, shared by all streams that it is pushed to.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    version: ContentVersion,
    entries: Entries,
    encodings: Encodings,
    selectors: Selectors,
    /// The names of resources with a time to live.
    expiring: OrdSet<Arc<str>>,
    /// Aliases, and the names of their resources: resources of several nodes may share an alias.
    aliases: OrdMap<Arc<str>, OrdSet<Arc<str>>>,
    /// Collections of `xdstp` names, and the names in them.
    collections: OrdMap<Arc<str>, OrdSet<Arc<str>>>,
    /// The state in version 2 of Envoy's API.
    v2: Arc<Derived<Arc<Self>>>,
    referrers: Arc<Derived<Referrers>>,
    views: Arc<Views>,
}

/// The known state of a collection at a sink.
#[derive(Clone, Debug, Default)]
pub(crate) enum Known {
    /// Its state is unknown.
    #[default]
    Nothing,
    /// A state that it accepted on this stream.
    State(Entries),
    /// The versions that it stated when the stream began, by name.
    Versions(BTreeMap<String, String>),
}

/// The difference from the state of a sink to a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Delta {
    pub(crate) changed: Vec<Arc<Entry>>,
    pub(crate) removed: Vec<(Arc<str>, Arc<Entry>)>,
}

impl Snapshot {
    /// Returns a digest of the content.
    pub fn version(&self) -> ContentVersion {
        self.version
    }

    /// Returns the resources, in the order of their names.
    pub fn resources(&self) -> impl ExactSizeIterator<Item = &RawResource> {
        self.entries.values().map(|entry| &entry.resource)
    }

    /// Returns all resources as fields of a push.
    pub(crate) fn encoded<M: prost::Message>(
        &self,
        encoding: Encoding,
        field: u32,
        message: impl Fn(&Entry) -> M,
    ) -> Bytes {
        self.encodings.get(encoding, field, self.entries.values().map(|entry| &**entry), message)
    }

    /// Returns all resources as elements of a JSON array.
    pub(crate) fn encoded_json(&self, bare: bool, json: impl Fn(&Entry) -> Json) -> Bytes {
        self.encodings.get_or_encode(Encoding::Json { bare }, || {
            json_elements(self.entries.values().map(|entry| &**entry), json)
        })
    }

    /// Returns the resources by their names.
    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Returns the state after a change. A resource without a version has its digest as version, so that sinks can name
    /// it.
    pub(crate) fn after(&self, change: &RawChange) -> Self {
        let mut next = Self {
            v2: Arc::new(self.v2.after(&self.entries)),
            referrers: Arc::new(self.referrers.after(&self.entries)),
            ..self.successor()
        };
        let normal = |name| name::normal(&change.collection, name);
        if change.full {
            let kept: BTreeSet<_> = change.resources.iter().map(|resource| normal(&resource.name)).collect();
            self.entries.keys().filter(|name| !kept.contains(&***name)).for_each(|name| next.remove(name));
        } else {
            change.removed.iter().for_each(|name| next.remove(&normal(name)));
        }
        for resource in &change.resources {
            next.put(Arc::new(Entry::new(resource, &normal(&resource.name))));
        }
        next
    }

    /// Returns a copy of the resources to be changed.
    pub(super) fn successor(&self) -> Self {
        Self {
            version: self.version,
            entries: self.entries.clone(),
            selectors: self.selectors.clone(),
            expiring: self.expiring.clone(),
            aliases: self.aliases.clone(),
            collections: self.collections.clone(),
            ..Self::default()
        }
    }

    /// Returns the resources in version 2 of Envoy's API, without resources that it cannot represent.
    pub(crate) fn v2(&self) -> &Arc<Self> {
        self.v2.get(|translated, former| {
            let mut next = translated.successor();
            let Delta { changed, removed } = Delta::between(former, &self.entries);
            removed.iter().for_each(|(name, _)| next.remove(name));
            for entry in changed {
                match entry.v2() {
                    Ok(entry) => next.put(entry.clone()),
                    Err(_) => next.remove(entry.name()),
                }
            }
            Arc::new(next)
        })
    }

    /// Returns the names of the resources that refer to one.
    pub(super) fn referrers(&self, name: &str) -> impl Iterator<Item = &Arc<str>> {
        let referrers = self.referrers.get(|mut referrers, former| {
            for difference in former.diff(&self.entries) {
                let (old, new) = match difference {
                    DiffItem::Add(_, new) => (None, Some(new)),
                    DiffItem::Update { old: (_, old), new: (_, new) } => (Some(old), Some(new)),
                    DiffItem::Remove(_, old) => (Some(old), None),
                };
                for name in old.iter().flat_map(|old| old.references()) {
                    if let Some(mut of) = referrers.remove(name) {
                        of.remove(old.map_or("", |old| old.name()));
                        if !of.is_empty() {
                            referrers.insert(name.clone(), of);
                        }
                    }
                }
                for (entry, name) in
                    new.iter().flat_map(|new| new.references().iter().map(move |name| (new, name)))
                {
                    referrers.entry(name.clone()).or_default().insert(entry.name().into());
                }
            }
            referrers
        });
        referrers.get(name).into_iter().flatten()
    }

    /// Returns the resources that version 2 of Envoy's API cannot represent, with the reasons, if it was requested.
    pub fn not_in_v2(&self) -> Vec<(&str, String)> {
        let converted = self.v2.known().map(|_| self.entries.values()).into_iter().flatten();
        converted.filter_map(|entry| Some((entry.name(), entry.v2().err()?.to_string()))).collect()
    }

    /// Returns the resource of that name, or else the first one with that alias.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(name).or_else(|| self.entries.get(self.aliases.get(name)?.get_min()?))
    }

    /// Returns the resource called `name`, or the resources of the collection called `name`.
    pub(crate) fn find_all(&self, name: &str) -> impl Iterator<Item = &Arc<Entry>> {
        let names = self.collections.get(name).into_iter().flatten();
        self.find(name).into_iter().chain(names.filter_map(|name| self.entries.get(name)))
    }

    /// Returns the resources that `find_all` returns for any of the names, each once, in the order of their names.
    pub(crate) fn find_each<'a>(&'a self, names: impl IntoIterator<Item = &'a Arc<str>>) -> Vec<Arc<Entry>> {
        let found = names.into_iter().flat_map(|name| self.find_all(name));
        let found: BTreeMap<_, _> = found.map(|entry| (entry.name(), entry)).collect();
        found.into_values().cloned().collect()
    }

    /// Returns the resources with a time to live.
    pub(crate) fn expiring(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.expiring.iter().filter_map(|name| self.entries.get(name))
    }

    /// Adds or replaces a resource. An equal one stays in place, so that states continue to share it.
    pub(super) fn put(&mut self, entry: Arc<Entry>) {
        if self.entries.get(entry.name()).is_some_and(|old| *old == entry) {
            return;
        }
        self.remove(entry.name());
        self.version.add(entry.digest);
        if let (Some(text), Some(selector)) = (entry.selector_text(), &entry.selector) {
            self.selectors.entry(text.into()).or_insert_with(|| (selector.clone(), 0)).1 += 1;
        }
        let name: Arc<str> = entry.name().into();
        if entry.ttl.is_some() {
            self.expiring.insert(name.clone());
        }
        for alias in &entry.aliases {
            self.aliases.entry(alias.as_str().into()).or_default().insert(name.clone());
        }
        for known in once(&*name).chain(entry.aliases.iter().map(String::as_str)) {
            if let Some(collection) = xdstp::collection(known) {
                self.collections.entry(collection.into()).or_default().insert(name.clone());
            }
        }
        self.entries.insert(name, entry);
    }

    pub(super) fn remove(&mut self, name: &str) {
        // A removal without effect would copy a part of the map.
        if !self.entries.contains_key(name) {
            return;
        }
        if let Some(gone) = self.entries.remove(name) {
            self.version.remove(gone.digest);
            if gone.ttl.is_some() {
                self.expiring.remove(name);
            }
            for alias in &gone.aliases {
                unindex(&mut self.aliases, alias, name);
            }
            for known in once(name).chain(gone.aliases.iter().map(String::as_str)) {
                if let Some(collection) = xdstp::collection(known) {
                    unindex(&mut self.collections, &collection, name);
                }
            }
            if let Some(text) = gone.selector_text()
                && let Some((_, resources)) = self.selectors.get_mut(text)
            {
                *resources -= 1;
                if *resources == 0 {
                    self.selectors.remove(text);
                }
            }
        }
    }

    /// Returns the state of a sink that has these versions of resources. Resources with other versions than here are
    /// equal to nothing.
    pub(crate) fn held(&self, versions: &BTreeMap<String, String>, version: fn(&Entry) -> String) -> Entries {
        static OTHER: LazyLock<Arc<Entry>> =
            LazyLock::new(|| Arc::new(Entry::new(&RawResource::default(), "")));
        let mut held = self.entries.clone();
        for (name, entry) in &self.entries {
            match versions.get(&**name) {
                Some(known) if *known == version(entry) => {}
                Some(_) => _ = held.insert(name.clone(), OTHER.clone()),
                None => _ = held.remove(name),
            }
        }
        for name in versions.keys().filter(|name| !self.entries.contains_key(name.as_str())) {
            held.insert(name.as_str().into(), OTHER.clone());
        }
        held
    }

    /// Returns the changes for a sink, or `None` if its state is unknown and it needs everything.
    pub(crate) fn since(&self, known: &Known) -> Option<Delta> {
        match known {
            Known::Nothing => None,
            Known::State(state) => Some(Delta::between(state, &self.entries)),
            Known::Versions(versions) => {
                let held = self.held(versions, |entry| entry.resource.version.clone());
                Some(Delta::between(&held, &self.entries))
            }
        }
    }
}

/// Removes a name from the set of a key, and the key with its last name.
fn unindex(index: &mut OrdMap<Arc<str>, OrdSet<Arc<str>>>, key: &str, name: &str) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

/// Returns resources as elements of a JSON array, without its brackets.
pub(crate) fn json_elements<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    json: impl Fn(&Entry) -> Json,
) -> Bytes {
    let mut elements = String::new();
    for entry in entries {
        if !elements.is_empty() {
            elements.push(',');
        }
        elements += &json(entry).to_string();
    }
    elements.into()
}

impl Delta {
    /// Returns the difference between two states.
    pub(crate) fn between(old: &Entries, new: &Entries) -> Self {
        let mut delta = Self::default();
        for difference in old.diff(new) {
            match difference {
                DiffItem::Add(_, new) | DiffItem::Update { new: (_, new), .. } => {
                    delta.changed.push(new.clone());
                }
                DiffItem::Remove(name, old) => delta.removed.push((name.clone(), old.clone())),
            }
        }
        delta
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mixer_adapter_config::annotations::ALIASES;

    fn resource(name: &str, version: &str) -> Arc<RawResource> {
        Arc::new(RawResource { name: name.to_owned(), version: version.to_owned(), ..RawResource::default() })
    }

    fn change(full: bool, resources: &[(&str, &str)], removed: &[&str]) -> RawChange {
        RawChange {
            collection: "c".into(),
            version: String::new(),
            full,
            resources: resources.iter().map(|(name, version)| resource(name, version)).collect(),
            removed: removed.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn full(resources: &[(&str, &str)]) -> Arc<Snapshot> {
        Arc::new(Snapshot::default().after(&change(true, resources, &[])))
    }

    fn names(delta: Option<Delta>) -> Option<(Vec<String>, Vec<String>)> {
        delta.map(|delta| {
            let changed = delta.changed.iter().map(|entry| &entry.resource);
            let changed = changed.map(|resource| format!("{}@{}", resource.name, resource.version));
            (changed.collect(), delta.removed.iter().map(|(name, _)| name.to_string()).collect())
        })
    }

    fn lists(changed: &[&str], removed: &[&str]) -> Option<(Vec<String>, Vec<String>)> {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Some((list(changed), list(removed)))
    }

    /// The cases of TestCalculateDelta, from a state of the stream and from versions the sink named.
    #[test]
    fn calculate_delta() {
        let cases: [(&[_], &[_], &[&str], &[&str]); 8] = [
            (&[], &[], &[], &[]),
            (&[], &[("a", "1")], &["a@1"], &[]),
            (&[("a", "1")], &[("a", "1")], &[], &[]),
            (&[("a", "1")], &[("a", "2")], &["a@2"], &[]),
            (&[("a", "1"), ("b", "1")], &[("b", "1")], &[], &["a"]),
            (&[("a", "1"), ("b", "1")], &[], &[], &["a", "b"]),
            (&[("a", "1"), ("b", "1")], &[("b", "2"), ("c", "1")], &["b@2", "c@1"], &["a"]),
            (&[("a", "1")], &[("b", "1")], &["b@1"], &["a"]),
        ];
        for (acked, current, changed, removed) in cases {
            let state = full(acked);
            let versions = acked.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned()));
            for known in [Known::State(state.entries.clone()), Known::Versions(versions.collect())] {
                let delta = names(full(current).since(&known));
                assert_eq!(delta, lists(changed, removed), "{acked:?} -> {current:?} from {known:?}");
            }
        }
        assert!(full(&[("a", "1")]).since(&Known::Nothing).is_none());
    }

    #[test]
    fn a_change_names_what_comes_and_what_goes_and_its_last_word_on_a_resource_counts() {
        let before = full(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let after = before.after(&change(
            false,
            &[("b", "2"), ("c", "1"), ("d", "1"), ("e", "1"), ("e", "2")],
            &["a", "c", "z"],
        ));
        assert_eq!(
            names(after.since(&Known::State(before.entries.clone()))),
            lists(&["b@2", "d@1", "e@2"], &["a"])
        );
    }

    #[test]
    fn the_version_is_that_of_the_content_however_it_came_about() {
        let direct = full(&[("a", "2"), ("c", "1")]);
        let steps = full(&[("a", "1"), ("b", "1")]).after(&change(false, &[("a", "2")], &[])).after(&change(
            false,
            &[("c", "1")],
            &["b"],
        ));
        assert_eq!(steps.version(), direct.version());
        assert_eq!(ContentVersion::of(steps.resources()), direct.version());
        assert_ne!(full(&[("a", "1")]).version(), full(&[("a", "2")]).version());
    }

    #[test]
    fn a_resource_without_a_version_gets_one_that_moves_with_it() {
        let version = |body: &'static [u8]| {
            let mut resource = RawResource { name: "a".to_owned(), ..RawResource::default() };
            resource.body.value = bytes::Bytes::from_static(body);
            let change = RawChange { resources: vec![Arc::new(resource)], ..change(true, &[], &[]) };
            Snapshot::default().after(&change).resources().map(|r| r.version.clone()).collect::<String>()
        };
        assert_eq!(version(b"x"), version(b"x"));
        assert_ne!(version(b"x"), version(b"y"));
        assert_eq!(version(b"x").len(), 16);
    }

    /// As the virtual hosts of two nodes.
    #[test]
    fn an_alias_of_two_resources_is_that_of_either_while_the_other_is_gone() {
        let with_alias = |name: &str| {
            let annotations = [(ALIASES.to_owned(), r#"["shop"]"#.to_owned())].into();
            Arc::new(RawResource { name: name.to_owned(), annotations, ..RawResource::default() })
        };
        let change =
            RawChange { resources: vec![with_alias("a"), with_alias("b")], ..change(true, &[], &[]) };
        let mut state = Snapshot::default().after(&change);
        let found = |state: &Snapshot| state.find("shop").map(|entry| entry.name().to_owned());
        assert_eq!(found(&state).as_deref(), Some("a"));
        state.remove("a");
        assert_eq!(found(&state).as_deref(), Some("b"));
        state.remove("b");
        assert_eq!(found(&state), None);
    }
}
