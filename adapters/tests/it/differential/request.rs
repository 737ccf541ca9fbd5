//! Requests as the cases write them, encoded as a client of the Mixer API encodes them.

use std::collections::BTreeMap;

use mixer_adapter::{
    prost::{Message as _, encoding},
    prost_types::{Duration, Timestamp},
};
use mixer_adapter_engine::{
    dictionary::{self, WORDS},
    proto::istio::mixer::v1::{
        CheckRequest, CompressedAttributes, ReportRequest, StringMap, check_request::QuotaParams,
        report_request::RepeatedAttributesSemantics,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// Attributes: the type that is sent, and the value.
type Bag = BTreeMap<String, (String, Json)>;

/// One call.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Request {
    Check {
        bag: Bag,
        #[serde(default)]
        dedup: String,
        /// Amount, and whether a part of it will do.
        #[serde(default)]
        quotas: BTreeMap<String, (i64, bool)>,
        /// Whether words of the global dictionary are sent as their indices.
        #[serde(default)]
        global: bool,
    },
    Report {
        bags: Vec<Bag>,
        #[serde(default)]
        global: bool,
        /// Whether no bag builds on the one before it.
        #[serde(default = "yes")]
        independent: bool,
        /// Whether the bags have their words in common.
        #[serde(default)]
        default_words: bool,
    },
}

fn yes() -> bool {
    true
}

/// The call in the messages of the Mixer API.
#[derive(Clone)]
pub(crate) enum Encoded {
    Check(Box<CheckRequest>),
    Report(ReportRequest),
}

impl Encoded {
    /// The bytes of the message. Attributes are written here: prost takes -0.0 for the default, and leaves it out of a map.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let (attributes, mut bytes) = match self {
            Self::Check(mut request) => {
                let attributes = request.attributes.take();
                (attributes.into_iter().collect(), request.encode_to_vec())
            }
            Self::Report(mut request) => (std::mem::take(&mut request.attributes), request.encode_to_vec()),
        };
        for mut attributes in attributes {
            let doubles = std::mem::take(&mut attributes.doubles);
            let mut encoded = attributes.encode_to_vec();
            for (name, number) in doubles {
                let mut entry = Vec::new();
                encoding::sint32::encode(1, &name, &mut entry);
                encoding::double::encode(2, &number, &mut entry);
                encoding::bytes::encode(DOUBLES, &entry, &mut encoded);
            }
            encoding::bytes::encode(ATTRIBUTES, &encoded, &mut bytes);
        }
        bytes
    }
}

/// Of both requests.
const ATTRIBUTES: u32 = 1;
/// Of CompressedAttributes.
const DOUBLES: u32 = 4;

impl Request {
    pub(crate) fn encode(&self) -> Encoded {
        match self {
            Self::Check { bag, dedup, quotas, global } => {
                let mut words = Words { global: *global, own: Vec::new() };
                let attributes = words.bag(bag);
                let params = |(amount, best_effort): &(i64, bool)| QuotaParams {
                    amount: *amount,
                    best_effort: *best_effort,
                };
                Encoded::Check(Box::new(CheckRequest {
                    attributes: Some(CompressedAttributes { words: words.own, ..attributes }),
                    global_word_count: word_count(*global),
                    deduplication_id: dedup.clone(),
                    quotas: quotas.iter().map(|(name, quota)| (name.clone(), params(quota))).collect(),
                }))
            }
            Self::Report { bags, global, independent, default_words } => {
                let mut words = Words { global: *global, own: Vec::new() };
                let mut encode = |bag: &Bag| {
                    if *default_words {
                        return words.bag(bag);
                    }
                    let mut words = Words { global: *global, own: Vec::new() };
                    let attributes = words.bag(bag);
                    CompressedAttributes { words: words.own, ..attributes }
                };
                let attributes = bags.iter().map(&mut encode).collect();
                let semantics = if *independent {
                    RepeatedAttributesSemantics::IndependentEncoding
                } else {
                    RepeatedAttributesSemantics::DeltaEncoding
                };
                Encoded::Report(ReportRequest {
                    attributes,
                    default_words: words.own,
                    global_word_count: word_count(*global),
                    repeated_attributes_semantics: semantics.into(),
                })
            }
        }
    }
}

fn word_count(global: bool) -> u32 {
    if global { u32::try_from(WORDS.len()).unwrap() } else { 0 }
}

/// The words of a message.
struct Words {
    global: bool,
    own: Vec<String>,
}

impl Words {
    fn index(&mut self, word: &str) -> i32 {
        if let (true, Some(index)) = (self.global, dictionary::index(word)) {
            return i32::try_from(index).unwrap();
        }
        let place = self.own.iter().position(|own| own == word).unwrap_or_else(|| {
            self.own.push(word.to_owned());
            self.own.len() - 1
        });
        -i32::try_from(place).unwrap() - 1
    }

    fn bag(&mut self, bag: &Bag) -> CompressedAttributes {
        let mut attributes = CompressedAttributes::default();
        for (name, (kind, value)) in bag {
            let name = self.index(name);
            match kind.as_str() {
                "string" => drop(attributes.strings.insert(name, self.index(value.as_str().unwrap()))),
                "int64" => drop(attributes.int64s.insert(name, value.as_i64().unwrap())),
                "double" => drop(attributes.doubles.insert(name, double(value))),
                "bool" => drop(attributes.bools.insert(name, value.as_bool().unwrap())),
                "bytes" => drop(attributes.bytes.insert(name, hexadecimal(value.as_str().unwrap()))),
                "timestamp" => {
                    let (seconds, nanos) = parts(value);
                    attributes.timestamps.insert(name, Timestamp { seconds, nanos });
                }
                "duration" => {
                    let (seconds, nanos) = parts(value);
                    attributes.durations.insert(name, Duration { seconds, nanos });
                }
                "string_map" => {
                    let entries = value.as_object().unwrap().iter();
                    let entries =
                        entries.map(|(key, value)| (self.index(key), self.index(value.as_str().unwrap())));
                    attributes.string_maps.insert(name, StringMap { entries: entries.collect() });
                }
                other => panic!("attributes of type {other} cannot be sent"),
            }
        }
        attributes
    }
}

/// Infinities and NaN are written as text.
fn double(value: &Json) -> f64 {
    value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

fn parts(value: &Json) -> (i64, i32) {
    (value[0].as_i64().unwrap(), i32::try_from(value[1].as_i64().unwrap()).unwrap())
}

fn hexadecimal(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}
