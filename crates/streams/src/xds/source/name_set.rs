use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
};

use crate::stream::source::entry::Entries;

/// The name of a resource, and whether its text belongs to a resource that is or was served, so that all streams share it.
pub(super) type Name = (Arc<str>, bool);

/// Returns a name with the text of the resource that it is for, if there is one.
pub(super) fn name_of(text: &str, entries: Option<&Entries>) -> Name {
    match entries.and_then(|entries| entries.get_key_value(text)) {
        Some((text, _)) => (text.clone(), true),
        None => (text.into(), false),
    }
}

/// Returns about how many bytes a name takes in a set.
fn size((text, is_shared): (&str, bool)) -> usize {
    // Nodes of maps are filled by two thirds.
    let slot = size_of::<Name>() * 3 / 2;
    if is_shared { slot } else { slot + text.len() + 2 * size_of::<usize>() }
}

/// Names of resources, with their size.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NameSet {
    names: BTreeMap<Arc<str>, bool>,
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
        self.names.contains_key(name)
    }

    pub(super) fn iter(&self) -> btree_map::Keys<'_, Arc<str>, bool> {
        self.names.keys()
    }

    pub(super) fn insert(&mut self, (text, is_shared): Name) {
        if let btree_map::Entry::Vacant(place) = self.names.entry(text) {
            self.bytes += size((place.key(), is_shared));
            place.insert(is_shared);
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some((text, is_shared)) = self.names.remove_entry(name) {
            self.bytes -= size((&text, is_shared));
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        let bytes = &mut self.bytes;
        self.names.retain(|text, is_shared| {
            let keeps = keep(text);
            if !keeps {
                *bytes -= size((text, *is_shared));
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
    type IntoIter = btree_map::IntoIter<Arc<str>, bool>;

    fn into_iter(self) -> Self::IntoIter {
        self.names.into_iter()
    }
}
