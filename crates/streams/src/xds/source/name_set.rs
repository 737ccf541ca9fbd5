use std::{
    borrow::Borrow,
    cmp::Ordering,
    collections::{BTreeSet, btree_set},
    ops::Deref,
    sync::Arc,
};

use crate::stream::source::entry::Entries;

/// The name of a resource. Equal names of the resources that are served share their text.
#[derive(Clone, Debug)]
pub(super) struct Name {
    text: Arc<str>,
    /// Whether the text belongs to a resource that is or was served, so that all streams share it.
    is_shared: bool,
}

impl Name {
    /// Returns a name with the text of the resource that it is for, if there is one.
    pub(super) fn of(text: &str, entries: Option<&Entries>) -> Self {
        match entries.and_then(|entries| entries.get_key_value(text)) {
            Some((text, _)) => Self::shared(text.clone()),
            None => Self { text: text.into(), is_shared: false },
        }
    }

    /// Returns the name of a resource that is or was served.
    pub(super) fn shared(text: Arc<str>) -> Self {
        Self { text, is_shared: true }
    }

    pub(super) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns about how many bytes it takes in a set.
    fn size(&self) -> usize {
        // Nodes of sets are filled by two thirds.
        let slot = size_of::<Self>() * 3 / 2;
        let own = if self.is_shared { 0 } else { self.text.len() + 2 * size_of::<usize>() };
        slot + own
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

/// Names of resources, with their size.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NameSet {
    names: BTreeSet<Name>,
    bytes: usize,
}

impl NameSet {
    /// Returns about how many bytes it takes.
    pub(super) fn size(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(super) fn iter(&self) -> btree_set::Iter<'_, Name> {
        self.names.iter()
    }

    pub(super) fn insert(&mut self, name: Name) {
        let size = name.size();
        if self.names.insert(name) {
            self.bytes += size;
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(name) = self.names.take(name) {
            self.bytes -= name.size();
        }
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Name) -> bool) {
        let bytes = &mut self.bytes;
        self.names.retain(|name| {
            let keeps = keep(name);
            if !keeps {
                *bytes -= name.size();
            }
            keeps
        });
    }
}

impl Extend<Name> for NameSet {
    fn extend<I: IntoIterator<Item = Name>>(&mut self, names: I) {
        names.into_iter().for_each(|name| self.insert(name));
    }
}

impl FromIterator<Name> for NameSet {
    fn from_iter<I: IntoIterator<Item = Name>>(names: I) -> Self {
        let mut set = Self::default();
        set.extend(names);
        set
    }
}

impl IntoIterator for NameSet {
    type Item = Name;
    type IntoIter = btree_set::IntoIter<Name>;

    fn into_iter(self) -> Self::IntoIter {
        self.names.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{raw_change::RawChange, raw_resource::RawResource, source::snapshot::Snapshot};

    #[test]
    fn the_size_is_that_of_the_names_in_it() {
        let names = || ["a", "bb", "ccc"].map(|text| Name::of(text, None));
        let mut set: NameSet = names().into_iter().collect();
        let size = set.size();
        set.extend(names());
        assert_eq!((set.len(), set.size()), (3, size));
        set.remove("bb");
        set.remove("bb");
        set.retain(|name| &**name != "ccc");
        assert_eq!(set.size(), Name::of("a", None).size());
        set.remove("a");
        assert_eq!((set.is_empty(), set.size()), (true, 0));
    }

    #[test]
    fn names_of_resources_share_their_texts() {
        let resource = RawResource { name: "ns/a".to_owned(), ..RawResource::default() };
        let change = RawChange {
            collection: "c/d".into(),
            version: String::new(),
            full: true,
            resources: vec![resource.into()],
            removed: Vec::new(),
        };
        let snapshot = Snapshot::default().after(&change);
        let of = |text| Name::of(text, Some(snapshot.entries()));
        assert!(Arc::ptr_eq(of("ns/a").text(), of("ns/a").text()));
        assert!(!Arc::ptr_eq(of("ns/b").text(), of("ns/b").text()));
    }

    #[test]
    fn names_of_resources_are_counted_without_their_texts() {
        let long: Arc<str> = "x".repeat(1000).into();
        assert!(Name::shared(long.clone()).size() < 100);
        assert!(Name::of(&long, None).size() > 1000);
    }
}
