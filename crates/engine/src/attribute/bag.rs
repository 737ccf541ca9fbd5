use std::sync::{Arc, OnceLock};

use super::{AttributeValue, Reads, Standard, Vocabulary, standard::NAMES};
use crate::expression::JsonMemo;

/// The declared attributes of one request, by slot. A bag of a vocabulary that extends another one holds only the attributes
/// added there; see [`Bag::with`].
#[derive(Clone, Debug)]
pub struct Bag {
    vocabulary: Arc<Vocabulary>,
    /// The first slot of this vocabulary, after the base's.
    first: u32,
    /// The attributes that the bag holds; `None` for all.
    used: Option<Arc<UsedSlots>>,
    values: Vec<Option<AttributeValue>>,
    /// What expressions have parsed of the request.
    json: OnceLock<Arc<JsonMemo>>,
}

/// The attributes of a vocabulary that a configuration reads or sets.
#[derive(Debug, Default)]
pub struct UsedSlots {
    /// The index in a bag by slot; [`UNUSED`] for attributes that it does not hold.
    indices: Box<[u32]>,
    /// The same for standard attributes.
    standard: Box<[u32]>,
    len: usize,
}

/// An index that is in no bag.
const UNUSED: u32 = u32::MAX;

/// Attributes from which the namespace of a request and other attributes are derived.
const SOURCES: [Standard; 5] = [
    Standard::named("context.reporter.kind"),
    Standard::named("destination.namespace"),
    Standard::named("destination.service.host"),
    Standard::named("source.namespace"),
    Standard::named("source.principal"),
];

impl UsedSlots {
    /// Collects slots of a vocabulary without a base, and the slots of attributes that others are derived from.
    pub fn new(vocabulary: &Vocabulary, slots: impl IntoIterator<Item = u32>) -> Self {
        let (mut indices, mut len) = (vec![UNUSED; vocabulary.len()], 0);
        let sources = SOURCES.into_iter().filter_map(|source| vocabulary.slot(source));
        for slot in slots.into_iter().chain(sources) {
            if let Some(index) = indices.get_mut(slot as usize).filter(|index| **index == UNUSED) {
                *index = len;
                len += 1;
            }
        }
        let slots = (0..NAMES.len()).map(|attribute| vocabulary.slot(Standard(attribute)));
        let standard = slots.map(|slot| slot.map_or(UNUSED, |slot| indices[slot as usize])).collect();
        Self { indices: indices.into(), standard, len: len as usize }
    }
}

impl Bag {
    /// Creates an empty bag.
    pub fn new(vocabulary: Arc<Vocabulary>) -> Self {
        let (first, values) = (vocabulary.first_slot(), vec![None; vocabulary.own_len()]);
        Self { vocabulary, first, used: None, values, json: OnceLock::new() }
    }

    /// Creates an empty bag that holds only these attributes, and ignores others as if they were not declared.
    pub fn of_used(vocabulary: Arc<Vocabulary>, used: Arc<UsedSlots>) -> Self {
        let values = vec![None; used.len];
        Self { vocabulary, first: 0, used: Some(used), values, json: OnceLock::new() }
    }

    /// Returns the index of a slot in `values`, which an attribute that the bag does not hold exceeds.
    #[inline]
    fn index(&self, slot: u32) -> Option<usize> {
        let own = slot.checked_sub(self.first)? as usize;
        match &self.used {
            None => Some(own),
            Some(used) => used.indices.get(own).map(|index| *index as usize),
        }
    }

    /// Returns the index of a standard attribute, as [`index`](Self::index) does.
    #[inline]
    fn standard_index(&self, attribute: Standard) -> Option<usize> {
        match &self.used {
            None => self.index(self.vocabulary.slot(attribute)?),
            Some(used) => used.standard.get(attribute.0).map(|index| *index as usize),
        }
    }

    /// Returns whether the bag can hold an attribute: it is declared and used.
    pub fn holds(&self, attribute: Standard) -> bool {
        self.standard_index(attribute).is_some_and(|index| index < self.values.len())
    }

    pub(crate) fn holds_slot(&self, slot: u32) -> bool {
        self.index(slot).is_some_and(|index| index < self.values.len())
    }

    /// Sets an attribute, also to a value that is not of its declared type. An undeclared attribute is ignored: no expression
    /// can read it.
    pub fn insert(&mut self, name: impl AsRef<str>, value: impl Into<AttributeValue>) {
        self.insert_with(name.as_ref(), || Some(value));
    }

    /// Sets an attribute as [`insert`](Self::insert) does, to a value that is computed only if the bag holds the attribute.
    pub fn insert_with<V: Into<AttributeValue>>(&mut self, name: &str, value: impl FnOnce() -> Option<V>) {
        let index = self.vocabulary.own_slot(name).and_then(|slot| self.index(slot));
        self.set_at(index, value);
    }

    /// Sets a standard attribute as [`insert_with`](Self::insert_with) does, without a lookup of its name.
    pub fn set_standard<V: Into<AttributeValue>>(
        &mut self,
        attribute: Standard,
        value: impl FnOnce() -> Option<V>,
    ) {
        self.set_at(self.standard_index(attribute), value);
    }

    fn set_at<V: Into<AttributeValue>>(&mut self, index: Option<usize>, value: impl FnOnce() -> Option<V>) {
        if let Some(entry) = index.and_then(|index| self.values.get_mut(index))
            && let Some(value) = value()
        {
            *entry = Some(value.into());
        }
    }

    /// Sets the attribute at a slot. A slot outside of this bag is ignored.
    pub fn set(&mut self, slot: u32, value: impl Into<AttributeValue>) {
        self.set_at(self.index(slot), || Some(value));
    }

    /// Copies attributes of another bag that are declared with the same type. `is_copied` has their slots there.
    pub(crate) fn copy(&mut self, other: &Self, is_copied: impl Fn(u32) -> bool) {
        for declared in other.vocabulary.iter().filter(|declared| is_copied(declared.slot)) {
            let own = self.vocabulary.find(declared.name);
            if let Some(own) = own.filter(|own| own.value_type == declared.value_type)
                && let Some(value) = other.at(declared.slot)
            {
                self.set(own.slot, value.clone());
            }
        }
    }

    /// Returns the value at a slot.
    #[inline]
    pub fn at(&self, slot: u32) -> Option<&AttributeValue> {
        self.values.get(self.index(slot)?)?.as_ref()
    }

    /// Returns the value of a standard attribute.
    pub fn standard(&self, attribute: Standard) -> Option<&AttributeValue> {
        self.values.get(self.standard_index(attribute)?)?.as_ref()
    }

    /// Drops the parsed JSON, which [`size`](Self::size) does not have.
    pub(crate) fn without_json(self) -> Self {
        Self { json: OnceLock::new(), ..self }
    }

    /// The size of all values in bytes; see [`AttributeValue::size`].
    pub fn size(&self) -> usize {
        self.values.iter().flatten().map(AttributeValue::size).sum()
    }

    /// Combines this bag with `extra`, a bag of a vocabulary that extends this one.
    pub fn with<'a>(&'a self, extra: &'a Bag) -> Attributes<'a> {
        Attributes { bag: self, extra: Some(extra) }
    }

    /// The vocabulary of this bag.
    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }
}

/// The attributes that an expression reads: a request's bag and optionally a bag of an extending vocabulary.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    bag: &'a Bag,
    extra: Option<&'a Bag>,
}

impl<'a> Attributes<'a> {
    /// Returns the value at a slot and records the read, even if there is no value.
    #[inline]
    pub fn read(self, slot: u32, reads: &mut Reads) -> Option<&'a AttributeValue> {
        debug_assert!(
            slot < self.bag.first || slot as usize >= self.bag.vocabulary.len() || self.bag.holds_slot(slot),
            "an attribute is read that the configuration does not use: {:?}",
            self.bag.vocabulary.at(slot)
        );
        let value = match (self.bag.at(slot), self.extra) {
            (None, Some(extra)) => extra.at(slot),
            (value, _) => value,
        };
        reads.record(slot, value);
        value
    }

    /// The parsed JSON of the request.
    pub(crate) fn json(self) -> &'a Arc<JsonMemo> {
        self.bag.json.get_or_init(Arc::default)
    }
}

impl<'a> From<&'a Bag> for Attributes<'a> {
    fn from(bag: &'a Bag) -> Self {
        Self { bag, extra: None }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use mixer_adapter_core::value::ValueType;

    #[test]
    fn undeclared_attributes_are_ignored() {
        let mut vocabulary = Vocabulary::new();
        vocabulary.declare("a", ValueType::String).unwrap();
        let mut bag = Bag::new(Arc::new(vocabulary));
        bag.insert("b", 1);
        bag.insert("a", "x");
        assert_eq!((bag.at(0), bag.at(1)), (Some(&AttributeValue::from("x")), None));
    }

    #[test]
    fn a_bag_of_used_attributes_ignores_others() {
        let mut vocabulary = Vocabulary::new();
        for name in ["a", "b", "c"] {
            vocabulary.declare(name, ValueType::String).unwrap();
        }
        let used = UsedSlots::new(&vocabulary, [2, 0, 2, 7]);
        let mut bag = Bag::of_used(Arc::new(vocabulary), Arc::new(used));
        for name in ["a", "b", "c", "d"] {
            bag.insert(name, name);
        }
        assert_eq!([0, 2].map(|slot| bag.at(slot).cloned()), ["a", "c"].map(|name| Some(name.into())));
        assert_eq!((bag.at(1), bag.at(3), bag.size()), (None, None, 2));
        assert_eq!([0, 1, 3].map(|slot| bag.holds_slot(slot)), [true, false, false]);
    }

    #[test]
    fn standard_attributes_are_those_that_the_vocabulary_declares_by_name() {
        let standard = ["request.path", "request.method", "request.host"].map(Standard::named);
        let mut vocabulary = Vocabulary::new();
        for (name, value_type) in [
            ("a", ValueType::String),
            ("request.method", ValueType::Int64),
            ("request.path", ValueType::String),
        ] {
            vocabulary.declare(name, value_type).unwrap();
        }
        let base = Arc::new(vocabulary);
        let used = Arc::new(UsedSlots::new(&base, [2]));
        let mut extended = Vocabulary::extending(base.clone());
        extended.declare("request.host", ValueType::String).unwrap();
        for (mut bag, slots) in [
            (Bag::new(base.clone()), [Some(2), Some(1), None]),
            (Bag::of_used(base.clone(), used), [Some(2), None, None]),
            (Bag::of_used(base, Arc::default()), [None; 3]),
            (Bag::new(Arc::new(extended)), [None, None, Some(3)]),
        ] {
            for (attribute, slot) in standard.into_iter().zip(slots) {
                bag.set_standard(attribute, || Some(attribute.name()));
                let expected = slot.map(|_| AttributeValue::from(attribute.name()));
                assert_eq!(bag.standard(attribute), expected.as_ref());
                assert_eq!(bag.holds(attribute), slot.is_some());
                assert_eq!(slot.and_then(|slot| bag.at(slot)), expected.as_ref());
            }
            assert_eq!((0..4).filter_map(|slot| bag.at(slot)).count(), slots.iter().flatten().count());
        }
    }

    #[test]
    fn a_bag_without_json_parses_again() {
        let bag = Bag::new(Arc::new(Vocabulary::new()));
        let json = Attributes::from(&bag).json().clone();
        assert!(Arc::ptr_eq(&json, Attributes::from(&bag).json()));
        assert!(!Arc::ptr_eq(&json, Attributes::from(&bag.without_json()).json()));
    }

    #[test]
    fn extra_attributes_are_read_after_those_of_the_request() {
        let mut base = Vocabulary::new();
        base.declare("a", ValueType::String).unwrap();
        let base = Arc::new(base);
        let mut extended = Vocabulary::extending(Arc::clone(&base));
        let slot = extended.declare("output.n", ValueType::Int64).unwrap();
        let mut bag = Bag::new(base);
        bag.insert("a", "x");
        let mut outputs = Bag::new(Arc::new(extended));
        outputs.insert("output.n", 7);
        let attributes = bag.with(&outputs);
        let mut reads = Reads::default();
        assert_eq!(attributes.read(0, &mut reads), Some(&AttributeValue::from("x")));
        assert_eq!(attributes.read(slot, &mut reads), Some(&AttributeValue::Int64(7)));
        assert_eq!(Attributes::from(&bag).read(slot, &mut reads), None);
        assert_eq!(attributes.read(99, &mut reads), None);
    }
}
