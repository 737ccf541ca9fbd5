//! Referenced attributes in an answer, with the words of the global dictionary as indices.

use super::compress::Words;
use mixer_adapter_engine::{
    attribute::Reference,
    proto::istio::mixer::v1::{
        ReferencedAttributes,
        referenced_attributes::{AttributeMatch, Condition},
    },
};

/// Encodes for a client that knows the first `known_words` words of the global dictionary.
pub(super) fn encode(references: &[Reference<'_>], known_words: usize) -> ReferencedAttributes {
    let mut words = Words::new(known_words);
    let matches = references.iter().map(|reference| AttributeMatch {
        name: words.index(reference.name),
        condition: if reference.present { Condition::Exact } else { Condition::Absence } as i32,
        regex: String::new(),
        map_key: reference.key.map_or(0, |key| words.index(key)),
    });
    let attribute_matches = matches.collect();
    ReferencedAttributes { words: words.into_own(), attribute_matches }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{ReferencedAttribute, decode_references};
    use mixer_adapter_engine::dictionary::WORDS;

    fn attribute(name: &str, key: Option<&str>, condition: &'static str) -> ReferencedAttribute {
        ReferencedAttribute { name: name.to_owned(), key: key.map(str::to_owned), condition }
    }

    #[test]
    fn references_are_decoded_whatever_words_the_client_knows() {
        let references = [
            Reference { name: "request.path", key: None, present: true },
            Reference { name: "request.headers", key: Some("x-own"), present: false },
        ];
        let expected = [
            attribute("request.path", None, "EXACT"),
            attribute("request.headers", Some("x-own"), "ABSENCE"),
        ];
        for (known_words, own) in [(WORDS.len(), 1), (0, 3)] {
            let encoded = encode(&references, known_words);
            assert_eq!(encoded.words.len(), own);
            assert_eq!(decode_references(&encoded), expected);
        }
    }

    #[test]
    fn an_index_outside_of_the_dictionary_is_shown() {
        let found = AttributeMatch { name: -7, condition: 2, regex: String::new(), map_key: 0 };
        let encoded = ReferencedAttributes { words: Vec::new(), attribute_matches: vec![found] };
        assert_eq!(decode_references(&encoded), [attribute("(word -7)", None, "EXACT")]);
    }
}
