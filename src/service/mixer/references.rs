//! Referenced attributes on the wire: indices of words the client has, and the words it has not.

use crate::{
    mixer::{attribute::Reference, dictionary},
    proto::istio::mixer::v1::{
        ReferencedAttributes,
        referenced_attributes::{AttributeMatch, Condition},
    },
};

/// A client that knows the first `known_words` of the global dictionary is sent only those of them by index.
pub(super) fn encode(references: &[Reference<'_>], known_words: usize) -> ReferencedAttributes {
    let mut words: Vec<String> = Vec::new();
    let mut index = |word: &str| match dictionary::index(word).filter(|index| *index < known_words) {
        // The dictionary and a message's words are far smaller than 2^31.
        Some(global) => global as i32,
        None => {
            let place = words.iter().position(|known| known == word).unwrap_or_else(|| {
                words.push(word.to_owned());
                words.len() - 1
            });
            -(place as i32) - 1
        }
    };
    let matches = references.iter().map(|reference| AttributeMatch {
        name: index(reference.name),
        condition: if reference.present { Condition::Exact } else { Condition::Absence } as i32,
        regex: String::new(),
        map_key: reference.key.map_or(0, &mut index),
    });
    let attribute_matches = matches.collect();
    ReferencedAttributes { words, attribute_matches }
}
