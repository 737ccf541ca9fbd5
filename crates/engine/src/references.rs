//! Which attributes an answer depends on, over the phases of a request.

use std::sync::Arc;

use super::attribute::{Reads, Reference, Vocabulary};

/// The attributes that a request's answer depends on.
///
/// What attribute generators made is not the request's, so reading it is no reference; but an output that a binding
/// looked for in vain is listed as absent, and so is a map among the outputs that was read as a whole, as in a real Mixer
/// (recorded case `apa-all-types`).
#[derive(Clone, Debug, Default)]
pub struct References {
    /// Reads of the request's attributes before generators made theirs.
    pub(crate) before: Reads,
    /// Reads after that.
    pub(crate) after: Reads,
    /// The slots that generators filled.
    pub(crate) generated: Vec<u32>,
    /// Outputs that are listed as absent.
    pub(crate) absent_outputs: Vec<Arc<str>>,
}

impl References {
    /// The references, each once; a read before generation goes before one after it.
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

    /// Forgets what came after generation: each quota of a request has references of its own.
    pub(crate) fn restart(&mut self) {
        self.after.clear();
    }
}
