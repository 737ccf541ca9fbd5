//! Compressed attributes: names, strings and keys as indices into a dictionary (docs/behaviour/mixer-api.md#compressed-attributes).

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use mixer_adapter_engine::{
    Budget, LimitError, Snapshot,
    attribute::{AttributeValue, Bag, StringMap},
    dictionary::{self, WORDS},
    proto::istio::mixer::v1::CompressedAttributes,
};

/// Decodes attributes that were compressed with one list of words.
///
/// The words are indexed once for all messages that share the list, so that the work for a message depends on its own size
/// only.
pub(super) struct Decoder<'r> {
    snapshot: &'r Snapshot,
    words: Vec<Word<'r>>,
    /// Global words that are in the list, too: an attribute with their global index is not found, as in a real Mixer
    /// (recorded case `check-word-shadows-global`).
    shadowed: BTreeSet<usize>,
}

/// A word of the list, with its decoded forms.
struct Word<'r> {
    text: &'r str,
    /// The slot of the attribute of this name.
    slot: OnceCell<Option<u32>>,
    /// The value of attributes with this string.
    shared: OnceCell<Arc<str>>,
}

/// An invalid message of a report in delta encoding.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeltaError {
    #[error("attribute index {0} is not in the dictionaries")]
    UnknownName(i32),
    #[error("attribute {0}: an index in its value is not in the dictionaries")]
    UnknownWord(String),
    #[error("duplicate attribute {name} (type {kind})")]
    Duplicate { name: String, kind: String },
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl<'r> Decoder<'r> {
    pub(super) fn new(snapshot: &'r Snapshot, words: &'r [String]) -> Self {
        let shadowed = words.iter().filter_map(|word| dictionary::index(word)).collect();
        let words = words.iter().map(|word| Word::new(word)).collect();
        Self { snapshot, words, shadowed }
    }

    /// Decodes attributes into a bag. As in a real Mixer, an attribute with an invalid index is skipped, and the first of two
    /// values of different kinds is used.
    ///
    /// # Errors
    /// The values exceed the budget.
    pub(super) fn read(
        &self,
        attributes: &CompressedAttributes,
        bag: &mut Bag,
        budget: &mut Budget,
    ) -> Result<(), LimitError> {
        self.each(attributes, budget, &mut |name, value| {
            let is_shadowed = usize::try_from(name).is_ok_and(|global| self.shadowed.contains(&global));
            if !is_shadowed
                && let (Some(slot), Some(value)) = (self.slot(name), value)
                && bag.at(slot).is_none()
            {
                bag.set(slot, value);
            }
            Ok(())
        })
    }

    /// Returns the names of attributes that are not declared, sorted.
    pub(super) fn undeclared(&self, attributes: &CompressedAttributes) -> BTreeSet<&str> {
        let maps = attributes.strings.keys().chain(attributes.string_maps.keys());
        let numbers =
            attributes.int64s.keys().chain(attributes.doubles.keys()).chain(attributes.bools.keys());
        let times = attributes.timestamps.keys().chain(attributes.durations.keys());
        let names = maps.chain(numbers).chain(times).chain(attributes.bytes.keys());
        names.filter(|name| self.slot(**name).is_none()).filter_map(|name| self.text(*name)).collect()
    }

    /// Returns the text at an index.
    fn text(&self, index: i32) -> Option<&str> {
        match usize::try_from(index) {
            Ok(global) => WORDS.get(global).map(|word| &**word),
            Err(_) => self.word(index).map(|word| word.text),
        }
    }

    /// Returns the value of an attribute with the string at an index.
    fn shared(&self, index: i32) -> Option<Arc<str>> {
        match usize::try_from(index) {
            Ok(global) => WORDS.get(global).cloned(),
            Err(_) => self.word(index).map(Word::shared),
        }
    }

    /// Returns the slot of the attribute whose name is at an index; `None` if there is no declared attribute of this name.
    fn slot(&self, index: i32) -> Option<u32> {
        match usize::try_from(index) {
            Ok(global) => self.snapshot.global_slots.get(global).copied().flatten(),
            Err(_) => self.word(index)?.slot(self.snapshot),
        }
    }

    /// Returns the word of the list at a negative index.
    fn word(&self, index: i32) -> Option<&Word<'r>> {
        self.words.get(usize::try_from(-(i64::from(index)) - 1).ok()?)
    }

    /// Calls `attribute` with the index of each name and its value; `None` if the value has an invalid index.
    fn each<E: From<LimitError>>(
        &self,
        attributes: &CompressedAttributes,
        budget: &mut Budget,
        attribute: &mut dyn FnMut(i32, Option<AttributeValue>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (name, index) in &attributes.strings {
            budget.add_attributes(self.length(*index))?;
            attribute(*name, self.shared(*index).map(AttributeValue::String))?;
        }
        for (name, number) in &attributes.int64s {
            attribute(*name, Some(AttributeValue::Int64(*number)))?;
        }
        for (name, number) in &attributes.doubles {
            attribute(*name, Some(AttributeValue::Double(*number)))?;
        }
        for (name, truth) in &attributes.bools {
            attribute(*name, Some(AttributeValue::Bool(*truth)))?;
        }
        for (name, instant) in &attributes.timestamps {
            attribute(*name, Some(AttributeValue::Timestamp(*instant)))?;
        }
        for (name, length) in &attributes.durations {
            let nanos = i128::from(length.seconds) * 1_000_000_000 + i128::from(length.nanos);
            attribute(*name, i64::try_from(nanos).ok().map(AttributeValue::Duration))?;
        }
        for (name, bytes) in &attributes.bytes {
            budget.add_attributes(bytes.len())?;
            attribute(*name, Some(AttributeValue::Bytes(bytes::Bytes::copy_from_slice(bytes))))?;
        }
        for (name, map) in &attributes.string_maps {
            for (key, value) in &map.entries {
                budget.add_attributes(StringMap::entry_size(self.length(*key), self.length(*value)))?;
            }
            attribute(*name, self.string_map(&map.entries).map(AttributeValue::StringMap))?;
        }
        Ok(())
    }

    /// Returns the length of the text at an index; 0 for an invalid one.
    fn length(&self, index: i32) -> usize {
        self.text(index).map_or(0, str::len)
    }

    fn string_map(&self, entries: &BTreeMap<i32, i32>) -> Option<StringMap> {
        let words = entries.iter().map(|(key, value)| Some((self.shared(*key)?, self.shared(*value)?)));
        words.collect::<Option<Vec<_>>>().map(|words| words.into_iter().collect())
    }
}

impl<'r> Word<'r> {
    fn new(text: &'r str) -> Self {
        Self { text, slot: OnceCell::new(), shared: OnceCell::new() }
    }

    fn slot(&self, snapshot: &Snapshot) -> Option<u32> {
        *self.slot.get_or_init(|| snapshot.vocabulary().find(self.text).map(|declared| declared.slot))
    }

    fn shared(&self) -> Arc<str> {
        self.shared.get_or_init(|| self.text.into()).clone()
    }
}

/// Applies a message of a report in delta encoding: the attributes in the message are replaced, maps as a whole.
///
/// # Errors
/// If the message is invalid, which rejects all of it, or exceeds the budget.
pub(super) fn update(
    decoder: &Decoder<'_>,
    attributes: &CompressedAttributes,
    state: &mut Bag,
    budget: &mut Budget,
) -> Result<(), DeltaError> {
    let before = budget.attribute_bytes();
    let mut seen = HashSet::new();
    let mut updates = Vec::new();
    decoder.each(attributes, budget, &mut |index, value| {
        let Some(name) = decoder.text(index) else {
            return Err(DeltaError::UnknownName(index));
        };
        let value = value.ok_or_else(|| DeltaError::UnknownWord(name.to_owned()))?;
        if !seen.insert(index) {
            return Err(DeltaError::Duplicate { name: name.to_owned(), kind: value.kind().to_lowercase() });
        }
        updates.extend(decoder.slot(index).map(|slot| (slot, value)));
        Ok(())
    })?;
    for (slot, value) in updates {
        state.set(slot, value);
    }
    let inherited = state.size().saturating_sub(budget.attribute_bytes() - before);
    Ok(budget.add_attributes(inherited)?)
}
