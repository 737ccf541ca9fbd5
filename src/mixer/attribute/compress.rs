use super::AttributeValue;
use crate::{
    mixer::dictionary,
    proto::istio::mixer::v1::{CompressedAttributes, StringMap},
};

/// Attributes as a client of the Mixer API sends them: words of the global dictionary by their index in it, others by their
/// index in a list of the message's own (mixer-runtime.md, section 4).
pub fn compress<'a>(
    attributes: impl IntoIterator<Item = (&'a str, &'a AttributeValue)>,
) -> CompressedAttributes {
    let mut words: Vec<String> = Vec::new();
    let mut index = |word: &str| match dictionary::index(word) {
        // The dictionary and a message's words are far fewer than 2^31.
        Some(global) => global as i32,
        None => {
            let place = words.iter().position(|known| known == word).unwrap_or_else(|| {
                words.push(word.to_owned());
                words.len() - 1
            });
            -(place as i32) - 1
        }
    };
    let mut compressed = CompressedAttributes::default();
    for (name, value) in attributes {
        let name = index(name);
        match value {
            AttributeValue::String(text) => drop(compressed.strings.insert(name, index(text))),
            AttributeValue::Int64(number) => drop(compressed.int64s.insert(name, *number)),
            AttributeValue::Double(number) => drop(compressed.doubles.insert(name, *number)),
            AttributeValue::Bool(truth) => drop(compressed.bools.insert(name, *truth)),
            AttributeValue::Timestamp(instant) => drop(compressed.timestamps.insert(name, *instant)),
            AttributeValue::Duration(nanos) => {
                let (seconds, nanos) = (nanos / 1_000_000_000, (nanos % 1_000_000_000) as i32);
                compressed.durations.insert(name, prost_types::Duration { seconds, nanos });
            }
            AttributeValue::Bytes(bytes) => drop(compressed.bytes.insert(name, bytes.to_vec())),
            AttributeValue::StringMap(map) => {
                let entries = map.iter().map(|(key, value)| (index(key), index(value))).collect();
                compressed.string_maps.insert(name, StringMap { entries });
            }
        }
    }
    compressed.words = words;
    compressed
}

#[cfg(test)]
mod tests {
    use super::*;

    // The words of section 4: a global one by its index, from 0; the message's own from -1 downwards.
    #[test]
    fn global_words_are_sent_by_their_index_and_others_in_the_message() {
        let path = AttributeValue::from("/x");
        let own = AttributeValue::from([("/x", "source.ip")]);
        let compressed = compress([("source.ip", &path), ("my.map", &own)]);
        assert_eq!(compressed.words, ["/x", "my.map"]);
        assert_eq!(compressed.strings, [(0, -1)].into());
        assert_eq!(compressed.string_maps[&-2].entries, [(-1, 0)].into());
    }

    #[test]
    fn durations_are_split_into_seconds_and_the_rest() {
        let length = AttributeValue::Duration(-1_500_000_000);
        let compressed = compress([("source.ip", &length)]);
        assert_eq!(compressed.durations[&0], prost_types::Duration { seconds: -1, nanos: -500_000_000 });
    }
}
