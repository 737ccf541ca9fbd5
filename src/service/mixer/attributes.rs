//! Compressed attributes: names, texts and keys as indices into a dictionary (docs/behaviour/mixer-api.md#compressed-attributes).

use std::{collections::BTreeMap, sync::Arc};

use mixer_adapter_engine::{
    Snapshot,
    attribute::{AttributeValue, Bag, StringMap},
    dictionary::{self, WORDS},
    proto::istio::mixer::v1::CompressedAttributes,
};

/// Reads attributes that were compressed with one list of words.
pub(super) struct Decoder<'s> {
    snapshot: &'s Snapshot,
    words: Vec<Arc<str>>,
    /// Global words that stand in the list too: an attribute under their global index is not found, as in a real Mixer
    /// (recorded case `check-word-shadows-global`).
    shadowed: Vec<usize>,
}

/// Where an attribute goes.
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

    /// Reads what can be read: an index of no word leaves its attribute out, and of two values of one attribute the
    /// first kind counts, as in a real Mixer.
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

    /// Every attribute: the index of its name, and its value unless an index in it is of no word.
    fn each(
        &self,
        attributes: &CompressedAttributes,
        attribute: &mut dyn FnMut(i32, Option<AttributeValue>) -> Result<(), String>,
    ) -> Result<(), String> {
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

/// The next state of a report in delta encoding: what it names is replaced, maps as a whole, everything else stays. Faults
/// reject the whole message, and the state stays what it was.
pub(super) fn update(
    decoder: &Decoder<'_>,
    attributes: &CompressedAttributes,
    state: &Bag,
) -> Result<Bag, String> {
    let mut next = state.clone();
    let mut seen = Vec::new();
    decoder.each(attributes, &mut |index, value| {
        let Some(name) = decoder.word(index) else {
            return Err(format!("attribute index {index} is of no word in the dictionaries"));
        };
        let value = value.ok_or_else(|| format!("attribute {name}: an index in its value is of no word"))?;
        if seen.contains(&index) {
            return Err(format!("duplicate attribute {name} (type {})", value.kind().to_lowercase()));
        }
        seen.push(index);
        next.insert(name.clone(), value);
        Ok(())
    })?;
    Ok(next)
}
