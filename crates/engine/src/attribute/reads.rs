use std::{iter::successors, sync::Arc};

use super::{AttributeValue, Vocabulary};

/// Records which attributes were read and whether each was present.
///
/// The Mixer API returns them as referenced attributes,
/// by which a client decides whether to reuse an answer (docs/behaviour/expressions.md#referenced-attributes and
/// docs/behaviour/mixer-api.md#referenced-attributes).
///
/// Recording does not allocate once the buffers have grown; [`Reads::clear`] retains them for the next evaluation.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    slots: Vec<Word>,
    /// The keys of this evaluation, then keys of earlier evaluations: a request often reads the same keys as the previous
    /// one, and reusing them avoids reference counting.
    keys: Vec<KeyRead>,
    /// The number of keys of this evaluation.
    key_count: usize,
    /// String maps that were present, each with the number of reads other than lookups of a key.
    whole_maps: Vec<(u32, u32)>,
}

/// The reads of 64 slots, one bit each.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    read: u64,
    present: u64,
    /// String maps. An answer depends only on the keys read from them.
    map: u64,
}

#[derive(Clone, Debug)]
struct KeyRead {
    slot: u32,
    key: Arc<str>,
    present: bool,
}

/// A read of an attribute or of one key of a string map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference<'a> {
    /// The attribute.
    pub name: &'a str,
    /// The key, for a string map that was present.
    pub key: Option<&'a str>,
    /// Whether it had a value: condition EXACT, otherwise ABSENCE.
    pub present: bool,
}

impl Reads {
    /// Records a read of the attribute at `slot` and its outcome.
    #[inline]
    pub fn record(&mut self, slot: u32, found: Option<&AttributeValue>) {
        let (index, bit) = (slot as usize / 64, 1 << (slot % 64));
        let word = match self.slots.get_mut(index) {
            Some(word) => word,
            None => self.grow(index),
        };
        word.read |= bit;
        match found {
            None => {}
            Some(AttributeValue::StringMap(_)) => {
                word.present |= bit;
                word.map |= bit;
                match self.whole_maps.iter_mut().find(|(map, _)| *map == slot) {
                    Some((_, reads)) => *reads = reads.saturating_add(1),
                    None => self.whole_maps.push((slot, 1)),
                }
            }
            Some(_) => word.present |= bit,
        }
    }

    #[cold]
    fn grow(&mut self, index: usize) -> &mut Word {
        self.slots.resize(index + 1, Word::default());
        &mut self.slots[index]
    }

    /// Records that the last read of the string map at `slot` was of single keys, which are recorded on their own.
    pub(crate) fn record_by_key(&mut self, slot: u32) {
        if let Some((_, reads)) = self.whole_maps.iter_mut().find(|(map, _)| *map == slot) {
            *reads = reads.saturating_sub(1);
        }
    }

    /// Records a read of a key of the string map at `slot`. `new_key` is called only for the first read of the key.
    pub(crate) fn record_key(
        &mut self,
        slot: u32,
        key: &str,
        present: bool,
        new_key: impl FnOnce() -> Arc<str>,
    ) {
        let (known, stale) = self.keys.split_at_mut(self.key_count);
        let is_this =
            |read: &KeyRead| read.slot == slot && (std::ptr::eq::<str>(&*read.key, key) || *read.key == *key);
        if known.iter().any(is_this) {
            return;
        }
        match stale.first_mut() {
            Some(read) if is_this(read) => read.present = present,
            Some(read) => *read = KeyRead { slot, key: new_key(), present },
            None => self.keys.push(KeyRead { slot, key: new_key(), present }),
        }
        self.key_count += 1;
    }

    /// Returns whether the attribute at `slot` was read.
    pub(crate) fn includes(&self, slot: u32) -> bool {
        self.slots.get(slot as usize / 64).is_some_and(|word| word.read & (1 << (slot % 64)) != 0)
    }

    /// Removes all reads but retains the buffers.
    pub fn clear(&mut self) {
        self.slots.fill(Word::default());
        self.key_count = 0;
        self.whole_maps.clear();
    }

    /// Returns the slots of string maps that may have been read beyond single keys. The Mixer API does not list them; a cache must not
    /// reuse an answer by their keys only.
    pub(crate) fn whole_maps(&self) -> impl Iterator<Item = u32> {
        self.whole_maps.iter().filter(|(_, reads)| *reads > 0).map(|(slot, _)| *slot)
    }

    /// The size of the buffers in bytes.
    pub(crate) fn size(&self) -> usize {
        let keys: usize = self.keys.iter().map(|read| size_of::<KeyRead>() + read.key.len()).sum();
        size_of_val(&*self.slots) + keys + size_of_val(&*self.whole_maps)
    }

    /// Iterates over the referenced attributes of the Mixer API: string maps by their keys only, missing string maps by
    /// name. Attributes that are not in `vocabulary` are skipped.
    pub fn referenced<'a>(&'a self, vocabulary: &'a Vocabulary) -> impl Iterator<Item = Reference<'a>> {
        self.attributes(vocabulary, false).chain(self.key_reads(vocabulary)).map(|reference| {
            // On the wire an empty key means no key.
            Reference { key: reference.key.filter(|key| !key.is_empty()), ..reference }
        })
    }

    /// Iterates over all reads, including string maps that were present.
    pub fn all<'a>(&'a self, vocabulary: &'a Vocabulary) -> impl Iterator<Item = Reference<'a>> {
        self.attributes(vocabulary, true).chain(self.key_reads(vocabulary))
    }

    fn attributes<'a>(
        &'a self,
        vocabulary: &'a Vocabulary,
        maps: bool,
    ) -> impl Iterator<Item = Reference<'a>> {
        self.slots.iter().zip((0_u32..).step_by(64)).flat_map(move |(word, first)| {
            let read = if maps { word.read } else { word.read & !word.map };
            bits(read).filter_map(move |bit| {
                let present = word.present >> bit & 1 != 0;
                Some(Reference { name: vocabulary.at(first + bit)?.name, key: None, present })
            })
        })
    }

    fn key_reads<'a>(&'a self, vocabulary: &'a Vocabulary) -> impl Iterator<Item = Reference<'a>> {
        self.keys[..self.key_count].iter().filter_map(|read| {
            let name = vocabulary.at(read.slot)?.name;
            Some(Reference { name, key: Some(&read.key), present: read.present })
        })
    }
}

/// Iterates over the positions of the bits that are set.
fn bits(word: u64) -> impl Iterator<Item = u32> {
    let set = |word: u64| (word != 0).then_some(word);
    successors(set(word), move |word| set(word & (word - 1))).map(u64::trailing_zeros)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        attribute::{Bag, StringMap},
        expression::{Expression, Language},
    };
    use mixer_adapter_core::value::ValueType;

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
        reads.record_key(here, "k", true, || unreachable!("the key is reused"));
        reads.record_key(here, "l", true, || "l".into());
        let keys: Vec<_> =
            reads.all(&vocabulary).map(|reference| (reference.key, reference.present)).collect();
        assert_eq!(keys, [(Some("k"), true), (Some("l"), true)]);
    }

    #[test]
    fn reads_of_extending_attributes_are_not_listed_for_the_base() {
        let base = Arc::new(Vocabulary::new());
        let mut extended = Vocabulary::extending(Arc::clone(&base));
        let slot = extended.declare("output.x", ValueType::String).unwrap();
        let mut reads = Reads::default();
        reads.record(slot, None);
        assert_eq!(reads.referenced(&base).count(), 0);
        assert_eq!(reads.referenced(&extended).count(), 1);
    }

    #[test]
    fn a_map_is_read_as_a_whole_unless_only_keys_are_looked_up() {
        let mut vocabulary = Vocabulary::new();
        let headers = vocabulary.declare("headers", ValueType::StringMap).unwrap();
        let vocabulary = Arc::new(vocabulary);
        let mut bag = Bag::new(Arc::clone(&vocabulary));
        bag.insert("headers", [("k", "v")].into_iter().collect::<StringMap>());
        let whole = |language: Language, text: &str| {
            let mut reads = Reads::default();
            let expression = Expression::compile_in(language, text, &vocabulary).unwrap();
            expression.eval(&bag, &mut reads).unwrap();
            reads.whole_maps().collect::<Vec<_>>()
        };
        let mut cases = vec![
            (Language::Cexl, "headers", true),
            (Language::Cexl, r#"headers["k"]"#, false),
            (Language::Cexl, r#"headers["a"] | headers["k"]"#, false),
            (Language::Cexl, r#"headers["k"] == headers["k"]"#, false),
        ];
        if cfg!(feature = "cel") {
            cases.extend([
                (Language::Cel, "headers", true),
                (Language::Cel, r#"headers["k"]"#, false),
                (Language::Cel, r#""a" in headers ? headers["a"] : headers["k"]"#, false),
                (Language::Cel, r#"[headers].map(h, h["k"] + h["k"])[0]"#, false),
                (Language::Cel, r#""k" in headers ? headers : emptyStringMap()"#, true),
                (Language::Compat, r#"headers["a"] | headers["k"]"#, false),
            ]);
        }
        for (language, text, is_whole) in cases {
            let expected: &[u32] = if is_whole { &[headers] } else { &[] };
            assert_eq!(whole(language, text), expected, "{text}");
        }
    }
}
