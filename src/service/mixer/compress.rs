//! Requests with compressed attributes, as clients of the Mixer API send them.

use std::collections::BTreeMap;

use indexmap::IndexSet;
use mixer_adapter_engine::{
    attribute::{AttributeValue, ParsedAttributes},
    dictionary,
    proto::istio::mixer::v1::{
        CheckRequest, CompressedAttributes, ReportRequest, StringMap,
        report_request::RepeatedAttributesSemantics,
    },
};

/// Compresses attributes with the first `known_words` words of the global dictionary and words of the message's own
/// (docs/behaviour/mixer-api.md#compressed-attributes). The last of several values of one attribute is used.
fn compress(attributes: &ParsedAttributes, known_words: usize) -> CompressedAttributes {
    let last: BTreeMap<&str, &AttributeValue> =
        attributes.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let mut words = Words::new(known_words);
    let mut compressed = CompressedAttributes::default();
    for (name, value) in last {
        let name = words.index(name);
        match value {
            AttributeValue::String(text) => {
                compressed.strings.insert(name, words.index(text));
            }
            AttributeValue::Int64(number) => {
                compressed.int64s.insert(name, *number);
            }
            AttributeValue::Double(number) => {
                compressed.doubles.insert(name, *number);
            }
            AttributeValue::Bool(truth) => {
                compressed.bools.insert(name, *truth);
            }
            AttributeValue::Timestamp(instant) => {
                compressed.timestamps.insert(name, *instant);
            }
            AttributeValue::Duration(nanos) => {
                const SECOND: i64 = 1_000_000_000;
                // The remainder of a division by a second fits 32 bits.
                let (seconds, nanos) = (nanos / SECOND, (nanos % SECOND) as i32);
                compressed.durations.insert(name, prost_types::Duration { seconds, nanos });
            }
            AttributeValue::Bytes(bytes) => {
                compressed.bytes.insert(name, bytes.to_vec());
            }
            AttributeValue::StringMap(map) => {
                let entries = map.iter().map(|(key, value)| (words.index(key), words.index(value)));
                compressed.string_maps.insert(name, StringMap { entries: entries.collect() });
            }
        }
    }
    compressed.words = words.into_own();
    compressed
}

/// The dictionary of a message: the first `known` global words, and its own.
pub(super) struct Words {
    known: usize,
    own: IndexSet<String>,
}

impl Words {
    pub(super) fn new(known: usize) -> Self {
        Self { known, own: IndexSet::new() }
    }

    /// Returns the index of a word: from 0 for global words, below 0 for the message's own.
    pub(super) fn index(&mut self, word: &str) -> i32 {
        match dictionary::index(word).filter(|index| *index < self.known) {
            // The dictionary and a message's words are far fewer than 2^31.
            Some(global) => global as i32,
            None => {
                let index = match self.own.get_index_of(word) {
                    Some(index) => index,
                    None => self.own.insert_full(word.to_owned()).0,
                };
                -(index as i32) - 1
            }
        }
    }

    /// The message's own words by index.
    pub(super) fn into_own(self) -> Vec<String> {
        self.own.into_iter().collect()
    }
}

/// A check of one request, without a deduplication id and quotas.
pub(crate) fn check_request(attributes: &ParsedAttributes, known_words: usize) -> CheckRequest {
    CheckRequest {
        attributes: Some(compress(attributes, known_words)),
        global_word_count: known_words as u32,
        ..CheckRequest::default()
    }
}

/// A report of several requests, each encoded independently of the others.
pub(crate) fn report_request(requests: &[ParsedAttributes], known_words: usize) -> ReportRequest {
    ReportRequest {
        attributes: requests.iter().map(|attributes| compress(attributes, known_words)).collect(),
        default_words: Vec::new(),
        global_word_count: known_words as u32,
        repeated_attributes_semantics: RepeatedAttributesSemantics::IndependentEncoding.into(),
    }
}
