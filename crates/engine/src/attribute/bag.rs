use std::sync::Arc;

use super::{AttributeValue, Reads, Vocabulary};

/// The declared attributes of one request, by slot. A bag of a vocabulary that extends another one holds only the attributes
/// added there; see [`Bag::with`].
#[derive(Clone, Debug)]
pub struct Bag {
    vocabulary: Arc<Vocabulary>,
    /// The slot of the first element of `values`.
    first: u32,
    values: Vec<Option<AttributeValue>>,
}

impl Bag {
    /// Creates an empty bag.
    pub fn new(vocabulary: Arc<Vocabulary>) -> Self {
        let (first, values) = (vocabulary.first_slot(), vec![None; vocabulary.own_len()]);
        Self { vocabulary, first, values }
    }

    /// Sets an attribute, also to a value that is not of its declared type. One that is not declared is ignored: no expression
    /// can read it.
    pub fn insert(&mut self, name: impl AsRef<str>, value: impl Into<AttributeValue>) {
        if let Some(slot) = self.vocabulary.own_slot(name.as_ref()) {
            self.set(slot, value);
        }
    }

    /// Sets the attribute at a slot. A slot outside of this bag is ignored.
    pub fn set(&mut self, slot: u32, value: impl Into<AttributeValue>) {
        let own = slot.checked_sub(self.first);
        if let Some(entry) = own.and_then(|own| self.values.get_mut(own as usize)) {
            *entry = Some(value.into());
        }
    }

    /// Returns the value at a slot.
    #[inline]
    pub fn at(&self, slot: u32) -> Option<&AttributeValue> {
        let own = slot.checked_sub(self.first)?;
        self.values.get(own as usize)?.as_ref()
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
    fn undeclared_attributes_are_ignored() {
        let mut vocabulary = Vocabulary::new();
        vocabulary.declare("a", ValueType::String).unwrap();
        let mut bag = Bag::new(Arc::new(vocabulary));
        bag.insert("b", 1);
        bag.insert("a", "x");
        assert_eq!((bag.at(0), bag.at(1)), (Some(&AttributeValue::from("x")), None));
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
