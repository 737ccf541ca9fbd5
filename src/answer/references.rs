use serde::Serialize;

use mixer_adapter_engine::{dictionary::WORDS, proto::istio::mixer::v1::ReferencedAttributes};

/// An attribute that an answer depends on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ReferencedAttribute {
    pub(crate) name: String,
    /// The key, if the answer depends on one entry of a map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// `EXACT` or `ABSENCE`.
    pub(crate) condition: &'static str,
}

/// Decodes the referenced attributes of an answer. An index that is not in the dictionary is shown as such.
pub(crate) fn decode(encoded: &ReferencedAttributes) -> Vec<ReferencedAttribute> {
    let references = encoded.attribute_matches.iter().map(|found| ReferencedAttribute {
        name: word(encoded, found.name),
        // Index 0 is "no key", though it is also the index of a word (docs/behaviour/mixer-api.md#referenced-attributes).
        key: (found.map_key != 0).then(|| word(encoded, found.map_key)),
        condition: found.condition().as_str_name(),
    });
    references.collect()
}

fn word(encoded: &ReferencedAttributes, index: i32) -> String {
    let word = match usize::try_from(index) {
        Ok(global) => WORDS.get(global).map(|word| word.to_string()),
        Err(_) => {
            let place = usize::try_from(-(i64::from(index)) - 1).ok();
            place.and_then(|place| encoded.words.get(place).cloned())
        }
    };
    word.unwrap_or_else(|| format!("(word {index})"))
}
