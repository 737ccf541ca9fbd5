//! The referenced attributes of an answer.

use std::sync::Arc;

use super::attribute::{Reads, Reference, Vocabulary};

/// The attributes that a request's answer depends on.
///
/// Reads of generated attributes are not references. As in Mixer (recorded case `apa-all-types`), an output that a
/// binding did not find is listed as absent, and so is a map among the outputs that was read as a whole.
#[derive(Clone, Debug, Default)]
pub struct References {
    /// Reads before attribute generation.
    pub(crate) before: Reads,
    /// Reads after attribute generation.
    pub(crate) after: Reads,
    /// The slots of generated attributes.
    pub(crate) generated: Vec<u32>,
    /// Outputs that are listed as absent.
    pub(crate) absent_outputs: Vec<Arc<str>>,
}

impl References {
    /// Returns the references without duplicates; reads before generation take precedence.
    pub fn list<'a>(&'a self, vocabulary: &'a Vocabulary) -> Vec<Reference<'a>> {
        let mut list: Vec<Reference<'a>> = self.before.referenced(vocabulary).collect();
        let absent = self.absent_outputs.iter().map(|name| Reference { name, key: None, present: false });
        let after = self.after.referenced(vocabulary).filter(|reference| {
            vocabulary.find(reference.name).is_none_or(|declared| !self.generated.contains(&declared.slot))
        });
        for reference in absent.chain(after) {
            if !list.iter().any(|known| known.name == reference.name && known.key == reference.key) {
                list.push(reference);
            }
        }
        list
    }

    /// Returns whether the attribute at `slot` was read.
    pub fn includes(&self, slot: u32) -> bool {
        self.before.includes(slot) || self.after.includes(slot)
    }

    /// Returns the slots of the request's string maps that may have been read beyond single keys.
    pub(crate) fn whole_maps(&self) -> impl Iterator<Item = u32> {
        let after = self.after.whole_maps().filter(|slot| !self.generated.contains(slot));
        self.before.whole_maps().chain(after)
    }

    /// The approximate size of its references in bytes.
    pub(crate) fn size(&self) -> usize {
        let names: usize = self.absent_outputs.iter().map(|name| size_of::<Arc<str>>() + name.len()).sum();
        self.before.size() + self.after.size() + self.generated.len() * size_of::<u32>() + names
    }

    /// Clears the reads after generation: each quota of a request has separate references.
    pub(crate) fn clear_after(&mut self) {
        self.after.clear();
    }
}
