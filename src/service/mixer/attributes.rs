//! Compressed attributes: names, strings and keys as indices into a dictionary (docs/behaviour/mixer-api.md#compressed-attributes).

use std::{collections::BTreeMap, sync::Arc};

use mixer_adapter_engine::{
    Snapshot,
    attribute::{AttributeValue, Bag, StringMap},
    dictionary::{self, WORDS},
    proto::istio::mixer::v1::CompressedAttributes,
};

/// Decodes attributes that were compressed with one list of words.
pub(super) struct Decoder<'s> {
    snapshot: &'s Snapshot,
    words: Vec<Arc<str>>,
    /// Global words that are in the list, too: an attribute with their global index is not found, as in a real Mixer
    /// (recorded case `check-word-shadows-global`).
    shadowed: Vec<usize>,
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
}

/// The place of an attribute in a bag.
enum Place<'w> {
    Slot(u32),
    Undeclared(&'w Arc<str>),
}

impl<'s> Decoder<'s> {
    pub(super) fn new(snapshot: &'s Snapshot, words: &[String]) -> Self {
        let words: Vec<Arc<str>> = words.iter().map(|word| Arc::from(word.as_str())).collect();
        let shadowed = words.iter().filter_map(|word| dictionary::index(word)).collect();
        Self { snapshot, words, shadowed }
    }

    /// Decodes attributes into a bag. As in a real Mixer, an attribute with an invalid index is skipped, and the first of two
    /// values of different kinds is used.
    pub(super) fn read(&self, attributes: &CompressedAttributes, bag: &mut Bag) {
        self.each(attributes, &mut |name, value| {
            let (Some(place), Some(value)) = (self.place(name), value) else { return Ok(()) };
            match place {
                Place::Slot(slot) if bag.at(slot).is_none() => bag.set(slot, value),
                Place::Undeclared(name) if bag.get(name).is_none() => bag.insert(name.clone(), value),
                Place::Slot(_) | Place::Undeclared(_) => {}
            }
            Ok(())
        })
        .unwrap_or(());
    }

    fn word(&self, index: i32) -> Option<&Arc<str>> {
        match usize::try_from(index) {
            Ok(global) => WORDS.get(global),
            Err(_) => self.words.get(usize::try_from(-(i64::from(index)) - 1).ok()?),
        }
    }

    fn place(&self, name: i32) -> Option<Place<'_>> {
        if let Ok(global) = usize::try_from(name) {
            if self.shadowed.contains(&global) {
                return None;
            }
            if let Some(slot) = self.snapshot.global_slots.get(global).copied().flatten() {
                return Some(Place::Slot(slot));
            }
        }
        let word = self.word(name)?;
        Some(match self.snapshot.vocabulary().find(word) {
            Some(declared) => Place::Slot(declared.slot),
            None => Place::Undeclared(word),
        })
    }

    /// Calls `attribute` with the index of each name and its value; `None` if the value has an invalid index.
    fn each(
        &self,
        attributes: &CompressedAttributes,
        attribute: &mut dyn FnMut(i32, Option<AttributeValue>) -> Result<(), DeltaError>,
    ) -> Result<(), DeltaError> {
        for (name, index) in &attributes.strings {
            attribute(*name, self.word(*index).map(|word| AttributeValue::String(word.clone())))?;
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
            attribute(*name, Some(AttributeValue::Bytes(bytes::Bytes::copy_from_slice(bytes))))?;
        }
        for (name, map) in &attributes.string_maps {
            attribute(*name, self.string_map(&map.entries).map(AttributeValue::StringMap))?;
        }
        Ok(())
    }

    fn string_map(&self, entries: &BTreeMap<i32, i32>) -> Option<StringMap> {
        let words =
            entries.iter().map(|(key, value)| Some((self.word(*key)?.clone(), self.word(*value)?.clone())));
        words.collect::<Option<Vec<_>>>().map(|words| words.into_iter().collect())
    }
}

/// Applies a message of a report in delta encoding: the attributes in the message are replaced, maps as a whole.
///
/// # Errors
/// If the message is invalid, which rejects all of it.
pub(super) fn update(
    decoder: &Decoder<'_>,
    attributes: &CompressedAttributes,
    state: &Bag,
) -> Result<Bag, DeltaError> {
    let mut next = state.clone();
    let mut seen = Vec::new();
    decoder.each(attributes, &mut |index, value| {
        let Some(name) = decoder.word(index) else {
            return Err(DeltaError::UnknownName(index));
        };
        let value = value.ok_or_else(|| DeltaError::UnknownWord(name.to_string()))?;
        if seen.contains(&index) {
            return Err(DeltaError::Duplicate { name: name.to_string(), kind: value.kind().to_lowercase() });
        }
        seen.push(index);
        next.insert(name.clone(), value);
        Ok(())
    })?;
    Ok(next)
}
