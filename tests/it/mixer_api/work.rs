//! The work for a request is linear in its size: twice as many elements of any repeated field allocate about twice as much.

use std::{collections::BTreeMap, fmt::Debug, sync::LazyLock};

use mixer_adapter::service::mixer::{check, report};
use mixer_adapter_engine::proto::istio::mixer::v1::{
    CheckRequest, CompressedAttributes, ReportRequest, StringMap, check_request::QuotaParams,
    report_request::RepeatedAttributesSemantics,
};
use mixer_adapter_host::handler::Caller;

use super::{
    engine::{MIXER, RUNTIME},
    linear,
};

/// Asserts that the work for requests is linear, from their bytes to their answers.
fn assert_linear<R: prost::Message + Default, A: Debug>(
    name: &str,
    request: impl Fn(i32) -> R,
    answer: impl AsyncFn(R) -> A,
) {
    LazyLock::force(&MIXER);
    linear::assert_linear(name, |n| {
        let bytes = request(i32::try_from(n).unwrap()).encode_to_vec();
        drop(RUNTIME.block_on(answer(R::decode(&bytes[..]).unwrap())));
    });
}

fn checks(name: &str, attributes: impl Fn(i32) -> CompressedAttributes) {
    let request = |n| CheckRequest { attributes: Some(attributes(n)), ..CheckRequest::default() };
    assert_linear(name, request, async |request| check(&MIXER, request, Caller::default()).await);
}

fn reports(name: &str, request: impl Fn(i32) -> ReportRequest) {
    assert_linear(name, request, async |request| report(&MIXER, request, Caller::default()).await);
}

/// Distinct words that no manifest declares.
fn words(n: i32) -> Vec<String> {
    (0..n).map(|index| format!("undeclared.{index}")).collect()
}

/// One attribute for each of the first `n` words of a message.
fn of_words<T>(n: i32, value: impl Fn(i32) -> T) -> BTreeMap<i32, T> {
    (0..n).map(|index| (-1 - index, value(index))).collect()
}

type Attributes = fn(i32) -> CompressedAttributes;

/// Attributes of every kind, each under `n` names.
const KINDS: [(&str, Attributes); 8] = [
    ("strings", |n| CompressedAttributes { strings: of_words(n, |_| 0), ..CompressedAttributes::default() }),
    ("int64s", |n| CompressedAttributes {
        int64s: of_words(n, i64::from),
        ..CompressedAttributes::default()
    }),
    ("doubles", |n| CompressedAttributes {
        doubles: of_words(n, f64::from),
        ..CompressedAttributes::default()
    }),
    ("bools", |n| CompressedAttributes { bools: of_words(n, |_| true), ..CompressedAttributes::default() }),
    ("timestamps", |n| CompressedAttributes {
        timestamps: of_words(n, |seconds| prost_types::Timestamp { seconds: seconds.into(), nanos: 0 }),
        ..CompressedAttributes::default()
    }),
    ("durations", |n| CompressedAttributes {
        durations: of_words(n, |seconds| prost_types::Duration { seconds: seconds.into(), nanos: 0 }),
        ..CompressedAttributes::default()
    }),
    ("bytes", |n| CompressedAttributes {
        bytes: of_words(n, |_| vec![0; 4]),
        ..CompressedAttributes::default()
    }),
    ("string_maps", |n| CompressedAttributes {
        string_maps: of_words(n, |_| StringMap { entries: [(0, 1)].into() }),
        ..CompressedAttributes::default()
    }),
];

#[test]
fn attributes_of_a_check() {
    for (kind, attributes) in KINDS {
        checks(kind, |n| CompressedAttributes { words: words(n), ..attributes(n) });
    }
}

#[test]
fn words_of_a_check() {
    checks("words", |n| CompressedAttributes { words: words(n), ..CompressedAttributes::default() });
    checks("equal words", |n| CompressedAttributes {
        words: vec!["request.path".to_owned(); n as usize],
        int64s: of_words(n, i64::from),
        ..CompressedAttributes::default()
    });
}

#[test]
fn entries_of_a_string_map() {
    checks("entries", |n| CompressedAttributes {
        words: [vec!["request.headers".to_owned()], words(n)].concat(),
        string_maps: [(-1, StringMap { entries: of_words(n, |index| -1 - index) })].into(),
        ..CompressedAttributes::default()
    });
}

#[test]
fn quotas_of_a_check() {
    let quotas = |n: i32| {
        let params = QuotaParams { amount: 1, best_effort: false };
        let quotas = words(n).into_iter().map(|name| (name, params)).collect();
        CheckRequest { quotas, ..CheckRequest::default() }
    };
    assert_linear("quotas", quotas, async |request| check(&MIXER, request, Caller::default()).await);
}

#[test]
fn messages_of_a_report() {
    reports("messages", |n| ReportRequest {
        attributes: vec![CompressedAttributes::default(); n as usize],
        ..ReportRequest::default()
    });
}

#[test]
fn default_words_of_a_report_with_as_many_messages() {
    for semantics in
        [RepeatedAttributesSemantics::IndependentEncoding, RepeatedAttributesSemantics::DeltaEncoding]
    {
        reports(semantics.as_str_name(), |n| ReportRequest {
            attributes: vec![CompressedAttributes::default(); n as usize],
            default_words: words(n),
            repeated_attributes_semantics: semantics.into(),
            ..ReportRequest::default()
        });
    }
}

#[test]
fn deltas_after_a_message_with_as_many_attributes() {
    for (kind, attributes) in KINDS {
        reports(kind, |n| {
            let mut messages = vec![CompressedAttributes::default(); n as usize];
            messages[0] = attributes(n);
            ReportRequest {
                attributes: messages,
                default_words: words(n),
                repeated_attributes_semantics: RepeatedAttributesSemantics::DeltaEncoding.into(),
                ..ReportRequest::default()
            }
        });
    }
}

#[test]
fn attributes_of_a_delta() {
    for (kind, attributes) in KINDS {
        reports(kind, |n| ReportRequest {
            attributes: vec![CompressedAttributes::default(), attributes(n)],
            default_words: words(n),
            repeated_attributes_semantics: RepeatedAttributesSemantics::DeltaEncoding.into(),
            ..ReportRequest::default()
        });
    }
}
