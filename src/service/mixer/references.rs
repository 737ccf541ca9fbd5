//! Referenced attributes on the wire: indices of words the client has, and the words it has not.

use super::compress::Words;
use mixer_adapter_engine::{
    attribute::Reference,
    dictionary::WORDS,
    proto::istio::mixer::v1::{
        ReferencedAttributes,
        referenced_attributes::{AttributeMatch, Condition},
    },
};

/// A client that knows the first `known_words` of the global dictionary is sent only those of them by index.
pub(super) fn encode(references: &[Reference<'_>], known_words: usize) -> ReferencedAttributes {
    let mut words = Words { known: known_words, own: Vec::new() };
    let matches = references.iter().map(|reference| AttributeMatch {
        name: words.index(reference.name),
        condition: if reference.present { Condition::Exact } else { Condition::Absence } as i32,
        regex: String::new(),
        map_key: reference.key.map_or(0, |key| words.index(key)),
    });
    let attribute_matches = matches.collect();
    ReferencedAttributes { words: words.own, attribute_matches }
}

/// The references that a server answered, each as attribute, key of a map, and how it was looked at (`EXACT`,
/// `ABSENCE`). An index of no word is shown as such.
pub fn referenced(answered: &ReferencedAttributes) -> Vec<(String, Option<String>, &'static str)> {
    let word = |index: i32| {
        let word = match usize::try_from(index) {
            Ok(global) => WORDS.get(global).map(|word| word.to_string()),
            Err(_) => usize::try_from(-(i64::from(index)) - 1)
                .ok()
                .and_then(|place| answered.words.get(place).cloned()),
        };
        word.unwrap_or_else(|| format!("(word {index})"))
    };
    let references = answered.attribute_matches.iter().map(|found| {
        // Index 0 is "no key", though it is also a word's (docs/behaviour/mixer-api.md#referenced-attributes).
        let key = (found.map_key != 0).then(|| word(found.map_key));
        (word(found.name), key, found.condition().as_str_name())
    });
    references.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_back_whatever_the_client_knows() {
        let references = [
            Reference { name: "request.path", key: None, present: true },
            Reference { name: "request.headers", key: Some("x-own"), present: false },
        ];
        let expected = [
            ("request.path".to_owned(), None, "EXACT"),
            ("request.headers".to_owned(), Some("x-own".to_owned()), "ABSENCE"),
        ];
        for (known_words, own) in [(WORDS.len(), 1), (0, 3)] {
            let encoded = encode(&references, known_words);
            assert_eq!(encoded.words.len(), own);
            assert_eq!(referenced(&encoded), expected);
        }
    }

    #[test]
    fn an_index_of_no_word_is_shown() {
        let found = AttributeMatch { name: -7, condition: 2, regex: String::new(), map_key: 0 };
        let answered = ReferencedAttributes { words: Vec::new(), attribute_matches: vec![found] };
        assert_eq!(referenced(&answered), [("(word -7)".to_owned(), None, "EXACT")]);
    }
}
