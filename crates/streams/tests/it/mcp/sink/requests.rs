//! What a sink requests when a stream begins.

use super::*;

/// TestCreateInitialRequests
#[test]
fn a_stream_begins_with_one_request_a_collection_in_the_order_of_names() {
    let mut sink = Sink::of(&[RULES, HANDLERS, INSTANCES]);
    let requests = sink.reopen(STREAM);
    let collections: Vec<_> = requests.iter().map(|request| request.collection.as_str()).collect();
    assert_eq!(collections, [HANDLERS, INSTANCES, RULES]);
    for request in requests {
        assert_eq!(request.sink_node.unwrap().id, "sink");
        assert_eq!(request.response_nonce, "");
        assert!(request.error_detail.is_none());
        assert!(!request.incremental && request.initial_resource_versions.is_empty());
    }
}

/// TestCreateInitialRequests, incremental
#[test]
fn a_sink_that_resumes_asks_for_changes_since_what_it_has() {
    let mut sink = Sink::with(&[RULES, HANDLERS], |options| options.mode = Mode::Resume).open();
    sink.accept(push(RULES, "1", &["ns/a@1", "ns/b@2"]));
    let requests = sink.reopen(2);
    assert!(!requests[0].incremental, "of handlers it has nothing");
    assert!(requests[0].initial_resource_versions.is_empty());
    assert!(requests[1].incremental);
    let versions =
        [("ns/a", "1"), ("ns/b", "2")].map(|(name, version)| (name.to_owned(), version.to_owned()));
    assert_eq!(requests[1].initial_resource_versions, versions.into());
}

#[test]
fn a_stream_of_a_sink_that_asks_full_first_begins_without_versions() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.accept(push(RULES, "1", &["ns/a@1"]));
    let requests = sink.reopen(2);
    assert!(!requests[0].incremental && requests[0].initial_resource_versions.is_empty());
}
