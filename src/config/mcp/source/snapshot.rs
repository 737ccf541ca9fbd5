use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::config::mcp::{Change, ContentVersion, Resource};

/// One state of a collection, shared by all streams that it is pushed to.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    version: ContentVersion,
    resources: BTreeMap<String, Arc<Entry>>,
    /// What led here from the state before: most sinks are there.
    step: Option<Arc<Step>>,
}

#[derive(Debug)]
struct Entry {
    resource: Resource,
    digest: u128,
}

#[derive(Debug)]
struct Step {
    from: ContentVersion,
    /// What changed, by name; `None` is gone.
    delta: Vec<(String, Option<Arc<Entry>>)>,
}

/// What a sink is known to have of a collection.
#[derive(Clone, Debug, Default)]
pub(super) enum Known {
    /// Nothing can be said of it.
    #[default]
    Nothing,
    /// A state it accepted on this stream.
    State(Arc<Snapshot>),
    /// What it says it had when the stream began: name to version.
    Versions(BTreeMap<String, String>),
}

/// The way from what a sink has to a snapshot.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Delta {
    pub(super) changed: Vec<Resource>,
    pub(super) removed: Vec<String>,
}

impl Snapshot {
    /// A digest of the content.
    pub fn version(&self) -> ContentVersion {
        self.version
    }

    /// The resources, in the order of their names.
    pub fn resources(&self) -> impl ExactSizeIterator<Item = &Resource> {
        self.resources.values().map(|entry| &entry.resource)
    }

    /// The state after a change. A resource without a version gets its digest for one, so that sinks can name what they have.
    pub(super) fn after(&self, change: &Change) -> Self {
        let mut next = Self { version: self.version, resources: self.resources.clone(), step: None };
        let mut removed: BTreeSet<&str> = change.removed.iter().map(String::as_str).collect();
        if change.full {
            let kept: BTreeSet<&str> =
                change.resources.iter().map(|resource| resource.name.as_str()).collect();
            removed = self.resources.keys().map(String::as_str).filter(|name| !kept.contains(name)).collect();
        }
        let mut touched = removed.clone();
        for name in removed {
            if let Some(gone) = next.resources.remove(name) {
                next.version.remove(gone.digest);
            }
        }
        for resource in &change.resources {
            let entry = Arc::new(Entry::new(resource));
            next.version.add(entry.digest);
            if let Some(old) = next.resources.insert(resource.name.clone(), entry) {
                next.version.remove(old.digest);
            }
            touched.insert(&resource.name);
        }
        let delta = |name: &&str| match (self.resources.get(*name), next.resources.get(*name)) {
            (Some(old), Some(new)) if old.digest == new.digest => None,
            (None, None) => None,
            (_, new) => Some(((*name).to_owned(), new.cloned())),
        };
        let delta = touched.iter().filter_map(delta).collect();
        next.step = Some(Arc::new(Step { from: self.version, delta }));
        next
    }

    /// What a sink lacks, or `None` if nothing is known of it and it needs everything.
    pub(super) fn since(&self, known: &Known) -> Option<Delta> {
        match known {
            Known::Nothing => None,
            Known::State(state) => Some(self.since_state(state)),
            Known::Versions(versions) => {
                let entries = self.resources.iter();
                let lacks =
                    entries.filter(|(name, entry)| versions.get(*name) != Some(&entry.resource.version));
                Some(Delta {
                    changed: lacks.map(|(_, entry)| entry.resource.clone()).collect(),
                    removed: versions
                        .keys()
                        .filter(|name| !self.resources.contains_key(*name))
                        .cloned()
                        .collect(),
                })
            }
        }
    }

    fn since_state(&self, state: &Snapshot) -> Delta {
        if let Some(step) = self.step.as_ref().filter(|step| step.from == state.version) {
            let mut delta = Delta::default();
            for (name, entry) in &step.delta {
                match entry {
                    Some(entry) => delta.changed.push(entry.resource.clone()),
                    None => delta.removed.push(name.clone()),
                }
            }
            return delta;
        }
        let same = |(name, entry): &(&String, &Arc<Entry>)| {
            state.resources.get(*name).is_some_and(|other| other.digest == entry.digest)
        };
        let changed = self.resources.iter().filter(|entry| !same(entry));
        let removed = state.resources.keys().filter(|name| !self.resources.contains_key(*name));
        Delta {
            changed: changed.map(|(_, entry)| entry.resource.clone()).collect(),
            removed: removed.cloned().collect(),
        }
    }
}

impl Entry {
    fn new(resource: &Resource) -> Self {
        let mut resource = resource.clone();
        if resource.version.is_empty() {
            resource.version = format!("{:016x}", resource.digest() >> 64);
        }
        Self { digest: resource.digest(), resource }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str, version: &str) -> Arc<Resource> {
        Arc::new(Resource { name: name.to_owned(), version: version.to_owned(), ..Resource::default() })
    }

    fn change(full: bool, resources: &[(&str, &str)], removed: &[&str]) -> Change {
        Change {
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
            (delta.changed.into_iter().map(|r| r.name + "@" + &r.version).collect(), delta.removed)
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
            for known in [Known::State(state), Known::Versions(versions.collect())] {
                let delta = names(full(current).since(&known));
                assert_eq!(delta, lists(changed, removed), "{acked:?} -> {current:?} from {known:?}");
            }
        }
        assert_eq!(full(&[("a", "1")]).since(&Known::Nothing), None);
    }

    #[test]
    fn the_step_from_the_state_before_is_the_same_as_comparing() {
        let before = full(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let after = before.after(&change(
            false,
            &[("b", "2"), ("c", "1"), ("d", "1"), ("e", "1"), ("e", "2")],
            &["a", "c", "z"],
        ));
        assert_eq!(names(after.since(&Known::State(before.clone()))), lists(&["b@2", "d@1", "e@2"], &["a"]));
        let compared = Snapshot { step: None, ..after };
        assert_eq!(names(compared.since(&Known::State(before))), lists(&["b@2", "d@1", "e@2"], &["a"]));
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
            let mut resource = Resource { name: "a".to_owned(), ..Resource::default() };
            resource.body.value = bytes::Bytes::from_static(body);
            let change = Change { resources: vec![Arc::new(resource)], ..change(true, &[], &[]) };
            Snapshot::default().after(&change).resources().map(|r| r.version.clone()).collect::<String>()
        };
        assert_eq!(version(b"x"), version(b"x"));
        assert_ne!(version(b"x"), version(b"y"));
        assert_eq!(version(b"x").len(), 16);
    }
}
