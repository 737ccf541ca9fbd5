//! Whatever a proxy sends, the Mixer API answers: random bytes, and requests that are well formed but make no sense.

pub(crate) mod engine;
#[cfg(feature = "envoy")]
mod envoy_work;
mod failures;
mod limits;
mod serve;
mod work;

use crate::linear;

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mixer_adapter::{prost::Message as _, service::mixer::check, tonic::Code};
use mixer_adapter_engine::proto::istio::mixer::v1::{
    CheckRequest, CompressedAttributes, ReportRequest, StringMap, check_request::QuotaParams,
};
use mixer_adapter_host::handler::Caller;
use proptest::prelude::*;
use serve::serve;

/// Attributes that a real Mixer dies of when it reads them in a condition (docs/behaviour/expressions.md#wrong-types-in-a-request):
/// a map and an address sent as texts.
#[test]
fn a_map_or_an_address_sent_as_a_text_is_that_requests_error_and_nothing_more() {
    for name in ["request.headers", "source.ip"] {
        let attributes = CompressedAttributes {
            words: vec![name.to_owned(), "text".to_owned()],
            strings: [(-1, -2)].into(),
            ..CompressedAttributes::default()
        };
        let request = CheckRequest { attributes: Some(attributes), ..CheckRequest::default() };
        let answer = engine::RUNTIME.block_on(check(&engine::MIXER, request, Caller::default()));
        // The rule that reads it does not match; the instance that reads it fails the request.
        assert_eq!(answer.unwrap_err().code(), Code::Internal, "{name}");
    }
}

/// The requests of the recorded cases: what fuzzing starts from, too.
fn recorded() -> Vec<Vec<u8>> {
    let cases = include_str!("../../data/dispatch/cases.jsonl").lines();
    let cases = cases.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let requests = cases.flat_map(|case| case["calls"].as_array().unwrap().clone());
    let requests = requests.filter_map(|call| STANDARD.decode(call["request_b64"].as_str()?).ok());
    requests.filter(|request| !request.is_empty()).collect()
}

#[test]
fn recorded_checks_and_reports_are_answered() {
    let recorded = recorded();
    assert!(recorded.len() > 100);
    recorded.iter().for_each(|request| serve(request));
}

fn index() -> impl Strategy<Value = i32> {
    prop_oneof![-8..8_i32, 150..230_i32, any::<i32>()]
}

/// Words that mean something to the rules.
const WORDS: [&str; 10] = [
    "request.path",
    "request.headers",
    "source.ip",
    "request.time",
    "response.duration",
    "response.code",
    "connection.mtls",
    "destination.namespace",
    "here",
    "x",
];

fn words() -> impl Strategy<Value = Vec<String>> {
    let word = prop::sample::select(WORDS.to_vec()).prop_map(str::to_owned);
    prop::collection::vec(prop_oneof![4 => word, 1 => any::<String>()], 0..8)
}

fn indices() -> impl Strategy<Value = BTreeMap<i32, i32>> {
    prop::collection::btree_map(index(), index(), 0..6)
}

fn attributes() -> impl Strategy<Value = CompressedAttributes> {
    let numbers = prop::collection::btree_map(index(), any::<i64>(), 0..4);
    let doubles = prop::collection::btree_map(index(), any::<f64>(), 0..2);
    let truths = prop::collection::btree_map(index(), any::<bool>(), 0..2);
    let lengths = prop::collection::btree_map(index(), (any::<i64>(), any::<i32>()), 0..2);
    let bytes = prop::collection::btree_map(index(), prop::collection::vec(any::<u8>(), 0..20), 0..2);
    let maps = prop::collection::btree_map(index(), indices(), 0..2);
    let all = (words(), indices(), numbers, doubles, truths, lengths, bytes, maps);
    all.prop_map(|(words, strings, int64s, doubles, bools, lengths, bytes, maps)| CompressedAttributes {
        words,
        strings,
        int64s,
        doubles,
        bools,
        timestamps: lengths
            .iter()
            .map(|(index, (seconds, nanos))| {
                (*index, mixer_adapter::prost_types::Timestamp { seconds: *seconds, nanos: *nanos })
            })
            .collect(),
        durations: lengths
            .into_iter()
            .map(|(index, (seconds, nanos))| (index, mixer_adapter::prost_types::Duration { seconds, nanos }))
            .collect(),
        bytes,
        string_maps: maps.into_iter().map(|(index, entries)| (index, StringMap { entries })).collect(),
    })
}

fn quotas() -> impl Strategy<Value = BTreeMap<String, QuotaParams>> {
    let params = (any::<i64>(), any::<bool>());
    let name = prop_oneof![Just("requests".to_owned()), Just("REQUESTS".to_owned()), any::<String>()];
    let params = params.prop_map(|(amount, best_effort)| QuotaParams { amount, best_effort });
    prop::collection::btree_map(name, params, 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn recorded_checks_with_a_stretch_replaced_are_answered(
        recorded in prop::sample::select(recorded()), at in any::<prop::sample::Index>(), length in 0..8_usize,
        bytes in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let start = at.index(recorded.len() + 1);
        let end = (start + length).min(recorded.len());
        serve(&[&recorded[..start], &bytes, &recorded[end..]].concat());
    }

    #[test]
    fn random_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        serve(&bytes);
    }

    #[test]
    fn checks_that_make_no_sense_are_answered(
        attributes in attributes(), count in prop_oneof![0..230_u32, any::<u32>()], quotas in quotas(),
    ) {
        let request = CheckRequest {
            attributes: Some(attributes),
            global_word_count: count,
            deduplication_id: "d".to_owned(),
            quotas,
        };
        serve(&request.encode_to_vec());
    }

    #[test]
    fn reports_that_make_no_sense_are_answered(
        attributes in prop::collection::vec(attributes(), 0..4), default_words in words(), semantics in 0..3_i32,
    ) {
        let request = ReportRequest {
            attributes,
            default_words,
            global_word_count: 200,
            repeated_attributes_semantics: semantics,
        };
        serve(&request.encode_to_vec());
    }
}
