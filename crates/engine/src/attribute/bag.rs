use std::sync::Arc;

use super::{AttributeValue, Reads, Vocabulary};

/// The attributes of one request.
///
/// Declared attributes are stored by slot. Undeclared ones are stored by name; traces show them, but expressions cannot
/// read them. A bag of a vocabulary that extends another one holds only the attributes added there; see [`Bag::with`].
#[derive(Clone, Debug)]
pub struct Bag {
    vocabulary: Arc<Vocabulary>,
    /// The slot of the first element of `values`.
    first: u32,
    values: Vec<Option<AttributeValue>>,
    undeclared: Vec<(Arc<str>, AttributeValue)>,
}

impl Bag {
    /// Creates an empty bag.
    pub fn new(vocabulary: Arc<Vocabulary>) -> Self {
        let (first, values) = (vocabulary.first_slot(), vec![None; vocabulary.own_len()]);
        Self { vocabulary, first, values, undeclared: Vec::new() }
    }

    /// Sets an attribute, which need not be declared nor of its declared type.
    pub fn insert(&mut self, name: impl Into<Arc<str>> + AsRef<str>, value: impl Into<AttributeValue>) {
        match self.vocabulary.own_slot(name.as_ref()) {
            Some(slot) => self.set(slot, value),
            None => match self.undeclared.iter_mut().find(|(known, _)| **known == *name.as_ref()) {
                Some((_, known)) => *known = value.into(),
                None => self.undeclared.push((name.into(), value.into())),
            },
        }
    }

    /// Sets the attribute at a slot. A slot outside of this bag is ignored.
    pub fn set(&mut self, slot: u32, value: impl Into<AttributeValue>) {
        let own = slot.checked_sub(self.first);
        if let Some(entry) = own.and_then(|own| self.values.get_mut(own as usize)) {
            *entry = Some(value.into());
        }
    }

    /// Returns the value of an attribute, declared or not.
    pub fn get(&self, name: &str) -> Option<&AttributeValue> {
        match self.vocabulary.own_slot(name) {
            Some(slot) => self.at(slot),
            None => self.undeclared.iter().find(|(known, _)| **known == *name).map(|(_, value)| value),
        }
    }

    /// Returns the value at a slot.
    #[inline]
    pub fn at(&self, slot: u32) -> Option<&AttributeValue> {
        let own = slot.checked_sub(self.first)?;
        self.values.get(own as usize)?.as_ref()
    }

    /// Iterates over all attributes with a value: declared ones by slot, then the others in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &AttributeValue)> {
        let declared = (self.first..)
            .zip(&self.values)
            .filter_map(|(slot, value)| Some((self.vocabulary.at(slot)?.name, value.as_ref()?)));
        declared.chain(self.undeclared.iter().map(|(name, value)| (name, value)))
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

/// The attributes that an expression reads: a request's bag and optionally one of an extending vocabulary.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    bag: &'a Bag,
    extra: Option<&'a Bag>,
}

impl<'a> Attributes<'a> {
    /// Returns the value at a slot and records the read, even if there is no value.
    #[inline]
    pub fn read(self, slot: u32, reads: &mut Reads) -> Option<&'a AttributeValue> {
        let value = match (self.bag.at(slot), self.extra) {
            (None, Some(extra)) => extra.at(slot),
            (value, _) => value,
        };
        reads.record(slot, value);
        value
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
    fn undeclared_attributes_are_stored_by_name_and_overwritten() {
        let mut vocabulary = Vocabulary::new();
        vocabulary.declare("a", ValueType::String).unwrap();
        let mut bag = Bag::new(Arc::new(vocabulary));
        bag.insert("b", 1);
        bag.insert("a", "x");
        bag.insert("b", 2);
        let all: Vec<_> = bag.iter().map(|(name, value)| (&**name, value.clone())).collect();
        assert_eq!(all, [("a", AttributeValue::from("x")), ("b", AttributeValue::Int64(2))]);
        assert_eq!(bag.get("b"), Some(&AttributeValue::Int64(2)));
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
