use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;

use super::standard::{ENVOY, NAMES, Standard, standard_attributes};
use mixer_adapter_core::{framework::suggest::suggest, value::ValueType};

/// The declared attributes: the merged attribute manifests of a configuration.
///
/// Every attribute has a slot, its index in a [`Bag`](super::Bag). Expressions refer to slots, so a vocabulary is filled
/// first and then shared in an [`Arc`] by expressions and bags.
///
/// A vocabulary can extend another one; its own attributes take the slots after the base's. This is how the
/// `output.*` attributes of an attribute generator are added for one rule without a copy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vocabulary {
    base: Option<Arc<Vocabulary>>,
    slots: HashMap<Arc<str>, u32, RandomState>,
    declared: Vec<(Arc<str>, ValueType)>,
    /// The slots of standard attributes that are declared here; empty if none are.
    standard: Vec<Option<u32>>,
}

/// The declaration of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declaration<'v> {
    /// The full name, such as `request.path`.
    pub name: &'v Arc<str>,
    /// The declared type.
    pub value_type: ValueType,
    /// The index in a bag.
    pub slot: u32,
}

/// Two declarations of one attribute with different types. Mixer chooses at random.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "attribute `{name}` is declared both as {first} and as {second}: use one type in all attribute manifests"
)]
#[non_exhaustive]
pub struct ConflictingTypesError {
    /// The attribute.
    pub name: Arc<str>,
    /// The type of the first declaration, which remains in effect.
    pub first: ValueType,
    /// The type of the rejected declaration.
    pub second: ValueType,
}

impl Vocabulary {
    /// Creates an empty vocabulary.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a vocabulary that extends `base`. A name that is declared again hides the base's.
    pub fn extending(base: Arc<Vocabulary>) -> Self {
        Self { base: Some(base), ..Self::default() }
    }

    /// Declares the attributes of Istio's own manifests, for use without a manifest.
    pub fn declare_standard(&mut self) {
        for attribute in standard_attributes().filter(|attribute| attribute.produced_by != ENVOY) {
            // An existing declaration remains in effect.
            let _ = self.declare(attribute.name, attribute.value_type);
        }
    }

    /// Declares an attribute and returns its slot. Declaring it again with the same type has no effect.
    ///
    /// # Errors
    /// The attribute is already declared with another type, which remains in effect.
    pub fn declare(
        &mut self,
        name: impl Into<Arc<str>>,
        value_type: ValueType,
    ) -> Result<u32, ConflictingTypesError> {
        let name = name.into();
        if let Some(&slot) = self.slots.get(&name) {
            let first = self.declared[(slot - self.first_slot()) as usize].1;
            let error = ConflictingTypesError { name, first, second: value_type };
            return if first == value_type { Ok(slot) } else { Err(error) };
        }
        let slot = self.len() as u32;
        if let Ok(index) = NAMES.binary_search(&&*name) {
            self.standard.resize(NAMES.len(), None);
            self.standard[index] = Some(slot);
        }
        self.slots.insert(Arc::clone(&name), slot);
        self.declared.push((name, value_type));
        Ok(slot)
    }

    /// Returns the attribute named `name`.
    pub fn find(&self, name: &str) -> Option<Declaration<'_>> {
        match self.slots.get(name) {
            Some(&slot) => self.at(slot),
            None => self.base.as_ref()?.find(name),
        }
    }

    /// Returns the attribute at `slot`.
    pub fn at(&self, slot: u32) -> Option<Declaration<'_>> {
        match slot.checked_sub(self.first_slot()) {
            Some(own) => {
                let (name, value_type) = self.declared.get(own as usize)?;
                Some(Declaration { name, value_type: *value_type, slot })
            }
            None => self.base.as_ref()?.at(slot),
        }
    }

    /// Returns the declared attribute whose name is most similar to `name`: it differs in few letters, or ends with it, such as
    /// `request.path` for `path`.
    pub fn similar(&self, name: &str) -> Option<&str> {
        let names: Vec<&str> = self.iter().map(|declaration| &**declaration.name).collect();
        if let Some(found) = suggest(name, names.iter().copied()) {
            return Some(found);
        }
        let longer = names.into_iter().filter(|candidate| {
            candidate.strip_suffix(name).is_some_and(|prefix| prefix.ends_with('.')) && !name.is_empty()
        });
        // Attributes of the request are the most frequent.
        longer.min_by_key(|candidate| (!candidate.starts_with("request."), candidate.len()))
    }

    /// Iterates over all attributes by slot.
    pub fn iter(&self) -> impl Iterator<Item = Declaration<'_>> {
        (0..self.len() as u32).filter_map(|slot| self.at(slot))
    }

    /// The number of attributes, including the base's.
    pub fn len(&self) -> usize {
        self.first_slot() as usize + self.declared.len()
    }

    /// Returns whether no attribute is declared.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first slot after the base's.
    pub(super) fn first_slot(&self) -> u32 {
        self.base.as_ref().map_or(0, |base| base.len() as u32)
    }

    /// Returns the slot of a standard attribute that is declared here, not in the base.
    pub fn slot(&self, attribute: Standard) -> Option<u32> {
        self.standard.get(attribute.0).copied().flatten()
    }

    /// Returns the slot of an attribute that is declared here, not in the base.
    pub(super) fn own_slot(&self, name: &str) -> Option<u32> {
        self.slots.get(name).copied()
    }

    /// The number of attributes declared here, not in the base.
    pub(super) fn own_len(&self) -> usize {
        self.declared.len()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_attribute_has_other_letters_or_ends_with_the_name() {
        let mut vocabulary = Vocabulary::new();
        vocabulary.declare_standard();
        for (name, similar) in [
            ("request.paht", Some("request.path")),
            ("path", Some("request.path")),
            ("headers", Some("request.headers")),
            ("code", Some("response.code")),
            ("my.own.attribute", None),
            ("", None),
        ] {
            assert_eq!(vocabulary.similar(name), similar, "{name}");
        }
    }

    #[test]
    fn the_first_of_two_types_remains_and_the_error_names_both() {
        let mut vocabulary = Vocabulary::new();
        let slot = vocabulary.declare("request.size", ValueType::Int64).unwrap();
        assert_eq!(vocabulary.declare("request.size", ValueType::Int64), Ok(slot));
        let error = vocabulary.declare("request.size", ValueType::String).unwrap_err();
        assert_eq!((error.first, error.second), (ValueType::Int64, ValueType::String));
        assert_eq!(vocabulary.find("request.size").unwrap().value_type, ValueType::Int64);
    }

    #[test]
    fn extending_attributes_take_the_slots_after_the_base_and_may_hide_it() {
        let mut base = Vocabulary::new();
        base.declare("a", ValueType::String).unwrap();
        base.declare("output.b", ValueType::String).unwrap();
        let mut extended = Vocabulary::extending(Arc::new(base));
        assert_eq!(extended.declare("output.b", ValueType::Int64), Ok(2));
        assert_eq!(extended.find("a").unwrap().slot, 0);
        assert_eq!(extended.find("output.b").unwrap().value_type, ValueType::Int64);
        assert_eq!(extended.at(1).unwrap().value_type, ValueType::String);
        assert_eq!(extended.iter().count(), 3);
        assert!(extended.find("c").is_none());
    }
}
