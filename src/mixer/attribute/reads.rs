use std::sync::Arc;

use super::{AttributeValue, Vocabulary};

/// Which attributes were read, and whether each was there: what the Mixer API answers as referenced attributes, so
/// that a client knows when it may reuse an answer (mixer-runtime.md, sections 1.4 and 4).
///
/// Recording allocates nothing once the buffers have grown; [`Reads::clear`] keeps them for the next evaluation.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    slots: Vec<Slot>,
    keys: Vec<KeyRead>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Slot {
    #[default]
    Unread,
    Absent,
    Present,
    /// A string map that was there. It depends on the keys read from it what the answer depends on.
    PresentMap,
}

#[derive(Clone, Debug)]
struct KeyRead {
    slot: u32,
    key: Arc<str>,
    present: bool,
}

/// One read: of an attribute, or of one key of a string map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference<'a> {
    /// The attribute.
    pub name: &'a str,
    /// The key, for a string map that was there.
    pub key: Option<&'a str>,
    /// Whether there was a value: EXACT, otherwise ABSENCE.
    pub present: bool,
}

impl Reads {
    /// Remembers that the attribute at a slot was looked at and what was found.
    pub fn record(&mut self, slot: u32, found: Option<&AttributeValue>) {
        let index = slot as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, Slot::Unread);
        }
        self.slots[index] = match found {
            None => Slot::Absent,
            Some(AttributeValue::StringMap(_)) => Slot::PresentMap,
            Some(_) => Slot::Present,
        };
    }

    /// Remembers that a key of the string map at a slot was looked up. `keep` makes the key to hold on to; it is asked
    /// only for the first read of that key.
    pub fn record_key(&mut self, slot: u32, key: &str, present: bool, keep: impl FnOnce() -> Arc<str>) {
        if !self.keys.iter().any(|read| read.slot == slot && *read.key == *key) {
            self.keys.push(KeyRead { slot, key: keep(), present });
        }
    }

    /// Forgets everything and keeps the buffers.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.keys.clear();
    }

    /// What an answer depends on, as the Mixer API lists it: string maps by their keys only, a string map that is
    /// not there by its name. Reads of attributes that `vocabulary` does not have (the extra ones of an extended
    /// vocabulary, when this is its base) are not listed.
    pub fn referenced<'a>(&'a self, vocabulary: &'a Vocabulary) -> impl Iterator<Item = Reference<'a>> {
        self.attributes(vocabulary, |slot| slot != Slot::PresentMap).chain(self.key_reads(vocabulary))
    }

    /// Every read, those of string maps that were there included: what a trace shows.
    pub fn all<'a>(&'a self, vocabulary: &'a Vocabulary) -> impl Iterator<Item = Reference<'a>> {
        self.attributes(vocabulary, |_| true).chain(self.key_reads(vocabulary))
    }

    fn attributes<'a>(
        &'a self,
        vocabulary: &'a Vocabulary,
        wanted: impl Fn(Slot) -> bool + 'a,
    ) -> impl Iterator<Item = Reference<'a>> {
        (0..).zip(&self.slots).filter(move |&(_, &seen)| seen != Slot::Unread && wanted(seen)).filter_map(
            |(slot, &seen)| {
                let name = vocabulary.at(slot)?.name;
                Some(Reference { name, key: None, present: seen != Slot::Absent })
            },
        )
    }

    fn key_reads<'a>(&'a self, vocabulary: &'a Vocabulary) -> impl Iterator<Item = Reference<'a>> {
        self.keys.iter().filter_map(|read| {
            let name = vocabulary.at(read.slot)?.name;
            Some(Reference { name, key: Some(&read.key), present: read.present })
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{mixer::attribute::StringMap, value::ValueType};

    #[test]
    fn a_map_is_referenced_by_its_keys_and_a_missing_map_by_its_name() {
        let mut vocabulary = Vocabulary::new();
        let here = vocabulary.declare("here", ValueType::StringMap).unwrap();
        let gone = vocabulary.declare("gone", ValueType::StringMap).unwrap();
        let mut reads = Reads::default();
        reads.record(here, Some(&StringMap::default().into()));
        reads.record(gone, None);
        for _ in 0..2 {
            reads.record_key(here, "k", false, || "k".into());
        }
        let key = Reference { name: "here", key: Some("k"), present: false };
        let absent = Reference { name: "gone", key: None, present: false };
        let map = Reference { name: "here", key: None, present: true };
        assert_eq!(reads.referenced(&vocabulary).collect::<Vec<_>>(), [absent, key]);
        assert_eq!(reads.all(&vocabulary).collect::<Vec<_>>(), [map, absent, key]);
        reads.clear();
        assert_eq!(reads.all(&vocabulary).count(), 0);
    }

    #[test]
    fn reads_of_extra_attributes_are_not_listed_for_the_base() {
        let base = Arc::new(Vocabulary::new());
        let mut extended = Vocabulary::over(Arc::clone(&base));
        let slot = extended.declare("output.x", ValueType::String).unwrap();
        let mut reads = Reads::default();
        reads.record(slot, None);
        assert_eq!(reads.referenced(&base).count(), 0);
        assert_eq!(reads.referenced(&extended).count(), 1);
    }
}
