//! The limits on a single call, and the pace of a long one.

use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed};

use futures_util::poll;
use mixer_adapter::{
    service::mixer::{check, report},
    tonic::{Code, Status},
};
use mixer_adapter_engine::{
    Mixer, RequestLimit, RequestLimits,
    proto::istio::mixer::v1::{
        CheckRequest, CompressedAttributes, ReportRequest, StringMap,
        report_request::RepeatedAttributesSemantics,
    },
};
use mixer_adapter_host::handler::Caller;
use mixer_adapter_net::grpc::StreamMemory;

use super::engine::{RUNTIME, mixer};

/// An engine with limits, and the rules of the other tests: one instance for each request of a report.
fn limited(limits: RequestLimits) -> Mixer {
    RUNTIME.block_on(mixer()).with_limits(limits)
}

/// Requests of which each has the second word as its path.
fn requests(count: usize) -> Vec<CompressedAttributes> {
    let request =
        CompressedAttributes { strings: BTreeMap::from([(-1, -2)]), ..CompressedAttributes::default() };
    vec![request; count]
}

fn report_of(count: usize, value: &str) -> ReportRequest {
    ReportRequest {
        attributes: requests(count),
        default_words: vec!["request.path".to_owned(), value.to_owned()],
        repeated_attributes_semantics: RepeatedAttributesSemantics::IndependentEncoding.into(),
        ..ReportRequest::default()
    }
}

fn send(mixer: &Mixer, request: ReportRequest) -> Result<(), Status> {
    RUNTIME.block_on(report(mixer, request, Caller::default())).map(drop)
}

fn assert_over(mixer: &Mixer, answer: Result<(), Status>, limit: RequestLimit, flag: &str) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains(flag), "{status}");
    let counted = mixer.counts().over_limit[limit as usize].load(Relaxed);
    assert!(counted > 0, "{flag}");
}

#[test]
fn a_word_that_every_request_of_a_report_refers_to_counts_each_time() {
    let mixer = limited(RequestLimits::default().expanded_size(100_000));
    let value = "x".repeat(10_000);
    assert!(send(&mixer, report_of(2, &value)).is_ok());
    let answer = send(&mixer, report_of(11, &value));
    assert_over(&mixer, answer, RequestLimit::Size, "(max-expanded-size)");
}

#[test]
fn attributes_that_a_delta_inherits_count_each_time() {
    let mixer = limited(RequestLimits::default().expanded_size(100_000));
    let deltas = |count| {
        let mut request = report_of(1, &"x".repeat(10_000));
        request.attributes.resize(count, CompressedAttributes::default());
        request.repeated_attributes_semantics = RepeatedAttributesSemantics::DeltaEncoding.into();
        send(&mixer, request)
    };
    assert!(deltas(2).is_ok());
    assert_over(&mixer, deltas(11), RequestLimit::Size, "(max-expanded-size)");
}

#[test]
fn entries_of_maps_count_before_a_map_is_made() {
    let mixer = limited(RequestLimits::default().expanded_size(100_000));
    let check = |entries: i32| {
        let map = StringMap { entries: (0..entries).map(|index| (index, -2)).collect() };
        let attributes = CompressedAttributes {
            words: vec!["request.headers".to_owned(), "x".repeat(1_000)],
            string_maps: [(-1, map)].into(),
            ..CompressedAttributes::default()
        };
        let request = CheckRequest { attributes: Some(attributes), ..CheckRequest::default() };
        RUNTIME.block_on(check(&mixer, request, Caller::default())).map(drop)
    };
    assert!(check(90).is_ok());
    assert_over(&mixer, check(100), RequestLimit::Size, "(max-expanded-size)");
}

#[test]
fn instances_are_counted_over_all_requests_of_a_report() {
    let one = limited(RequestLimits::default().instances(1));
    let ten = limited(RequestLimits::default().instances(10));
    assert!(send(&one, report_of(1, "/")).is_ok());
    assert!(send(&ten, report_of(10, "/")).is_ok());
    let answer = send(&ten, report_of(11, "/"));
    assert_over(&ten, answer, RequestLimit::Instances, "(max-instances)");
}

/// Reports paths of 10,000 bytes with this memory; returns what was taken.
fn taken(mixer: &Mixer, requests: usize, bytes: usize) -> (Result<(), Status>, usize) {
    let memory = StreamMemory::new(bytes).for_message();
    let caller = Caller { memory: Some(memory.clone()), ..Caller::default() };
    let request = report_of(requests, &"x".repeat(10_000));
    let answer = RUNTIME.block_on(report(mixer, request, caller)).map(drop);
    (answer, memory.taken())
}

#[test]
fn the_memory_of_a_report_is_that_of_one_request_and_all_instances() {
    let mixer = limited(RequestLimits::default());
    let taken = |requests| {
        let (answer, taken) = taken(&mixer, requests, usize::MAX);
        answer.unwrap();
        taken
    };
    let (one, thousand) = (taken(1), taken(1_000));
    assert!((10_000..12_000).contains(&one), "its path, and the instance without it: {one}");
    assert!((50_000..500_000).contains(&(thousand - one)), "instances, but no further path: {thousand}");
}

#[test]
fn a_call_without_memory_is_refused() {
    let mixer = limited(RequestLimits::default());
    let (answer, taken) = taken(&mixer, 1_000, 50_000);
    assert_over(&mixer, answer, RequestLimit::Memory, "(memory-limit)");
    assert!(taken < 60_000, "it ends at once: {taken}");
}

#[test]
fn thousands_of_requests_of_an_ordinary_size_are_within_the_defaults() {
    let mixer = limited(RequestLimits::default());
    send(&mixer, report_of(5_000, &"x".repeat(4_000))).unwrap();
}

#[test]
fn a_long_report_yields_and_ends_when_its_caller_has_gone() {
    let mixer = limited(RequestLimits::default());
    RUNTIME.block_on(async {
        let mut report = Box::pin(report(&mixer, report_of(1_000, "/"), Caller::default()));
        assert!(poll!(&mut report).is_pending());
        drop(report);
        let counts = mixer.counts();
        assert_eq!(counts.reports.each_ref().map(|count| count.load(Relaxed)), [0, 0]);
    });
}

#[test]
fn a_long_report_ends_at_its_deadline() {
    let mixer = limited(RequestLimits::default());
    RUNTIME.block_on(async {
        let caller = Caller { deadline: Some(tokio::time::Instant::now()), ..Caller::default() };
        let status = report(&mixer, report_of(1_000, "/"), caller).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    });
}

#[test]
fn the_text_of_a_failed_report_is_bounded() {
    let mixer = limited(RequestLimits::default());
    // A path must be a text, so that no instance with it can be built.
    let request =
        CompressedAttributes { int64s: BTreeMap::from([(-1, 1)]), ..CompressedAttributes::default() };
    let request = ReportRequest {
        attributes: vec![request; 1_000],
        default_words: vec!["request.time".to_owned()],
        ..ReportRequest::default()
    };
    let status = send(&mixer, request).unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    let text = status.message();
    assert!(text.len() < 3_000 && text.ends_with(" more") && text.contains("request.time"), "{text}");
}
