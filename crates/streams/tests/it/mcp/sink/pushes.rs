//! How pushes change what a sink has.

use super::*;

/// TestSinkACKAddUpdateDelete
#[test]
fn pushes_are_applied_and_acknowledged_with_their_nonces() {
    let mut sink = Sink::with(&[RULES, HANDLERS, INSTANCES], full).open();
    for (nonce, collection) in [("1", RULES), ("2", HANDLERS), ("3", INSTANCES)] {
        let answer = sink.accept(push(collection, nonce, &["ns/a@1"]));
        assert_eq!(
            answer,
            RequestResources { sink_node: answer.sink_node.clone(), ..ack(collection, nonce) }
        );
        assert_eq!(of_change(&sink.changes.pop().unwrap()), (true, strings(&["ns/a@1"]), vec![]));
    }
    // Update A and add B; remove A, update B, add C.
    sink.accept(push(RULES, "4", &["ns/a@2", "ns/b@1"]));
    assert_eq!(of_change(&sink.changes.pop().unwrap()), (false, strings(&["ns/a@2", "ns/b@1"]), vec![]));
    sink.accept(push(RULES, "5", &["ns/b@2", "ns/c@1"]));
    assert_eq!(
        of_change(&sink.changes.pop().unwrap()),
        (false, strings(&["ns/b@2", "ns/c@1"]), strings(&["ns/a"]))
    );
    // Remove all, once more, and add again.
    sink.accept(push(RULES, "6", &[]));
    assert_eq!(of_change(&sink.changes.pop().unwrap()), (false, vec![], strings(&["ns/b", "ns/c"])));
    assert_eq!(sink.accept(push(RULES, "7", &[])).response_nonce, "7");
    assert!(sink.changes.is_empty(), "an equal push is no event");
    sink.accept(push(RULES, "8", &["ns/a@3"]));
    assert_eq!(sink.held(RULES), ["ns/a@3"]);
    assert_eq!((sink.held(HANDLERS), sink.held(INSTANCES)), (strings(&["ns/a@1"]), strings(&["ns/a@1"])));
}

/// TestSinkNACK
#[test]
fn refusals_name_code_collection_resource_and_reason_and_change_nothing() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.accept(push(RULES, "1", &["ns/a@1"]));
    sink.changes.clear();

    sink.receive(push("no/such", "2", &["ns/a@1"]));
    let answer = sink.answer();
    assert_eq!((answer.collection.as_str(), answer.response_nonce.as_str()), ("no/such", "2"));
    assert_eq!(error(&answer), (Code::Unimplemented as i32, "unsupported collection no/such"));

    let mut bad = push(RULES, "3", &["ns/a@2", "ns/b@1"]);
    bad.resources[1].body = None;
    sink.receive(bad);
    let answer = sink.answer();
    assert_eq!((answer.response_nonce.as_str(), answer.incremental), ("3", false));
    assert_eq!(
        error(&answer),
        (Code::InvalidArgument as i32, "istio/policy/v1beta1/rules: ns/b: it has no body")
    );
    assert!(sink.changes.is_empty(), "the application is not asked");

    sink.receive(push(RULES, "4", &["ns/a@2"]));
    sink.decide(RULES, Err(fault("ns/a", "match: unknown attribute")));
    let answer = sink.answer();
    assert_eq!((answer.response_nonce.as_str(), answer.incremental), ("4", false));
    assert_eq!(
        error(&answer),
        (Code::InvalidArgument as i32, "istio/policy/v1beta1/rules: ns/a: match: unknown attribute")
    );
    assert_eq!(sink.held(RULES), ["ns/a@1"]);

    let answer = sink.accept(push(RULES, "5", &["ns/a@3"]));
    assert_eq!((answer.response_nonce.as_str(), answer.error_detail), ("5", None));
    assert_eq!(sink.held(RULES), ["ns/a@3"]);
}

#[test]
fn the_text_of_a_refusal_is_bounded() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.receive(push(RULES, "1", &["ns/a@1"]));
    sink.decide(RULES, Err(fault("ns/a", &"x".repeat(1 << 20))));
    assert!(error(&sink.answer()).1.len() <= 2_000);
    let reasons = (0..10_000).map(|n| ResourceError { resource: format!("ns/{n}"), text: "bad".to_owned() });
    sink.receive(push(RULES, "2", &["ns/a@2"]));
    sink.decide(RULES, Err(NackError { reasons: reasons.collect() }));
    let answer = sink.answer();
    let (_, text) = error(&answer);
    assert!(text.len() <= 2_000 && text.ends_with(" more"), "{text}");
    sink.receive(push(&"y".repeat(1 << 20), "3", &[]));
    assert!(error(&sink.answer()).1.len() <= 2_000);
}

/// TestSinkResume
#[test]
fn a_new_stream_asks_again_and_an_equal_push_on_it_is_no_event() {
    let mut sink = Sink::with(&[RULES, HANDLERS], full).open();
    sink.accept(push(RULES, "1", &["ns/a@1"]));
    sink.accept(push(HANDLERS, "2", &["ns/h@1"]));
    sink.changes.clear();
    assert!(sink.close(Status::ok("")).good);
    let requests = sink.reopen(STREAM);
    assert_eq!(requests.iter().map(|r| r.collection.as_str()).collect::<Vec<_>>(), [HANDLERS, RULES]);
    assert!(requests.iter().all(|r| r.response_nonce.is_empty() && r.initial_resource_versions.is_empty()));
    assert_eq!(sink.accept(push(RULES, "1", &["ns/a@1"])).response_nonce, "1");
    assert!(sink.changes.is_empty());
    sink.accept(push(HANDLERS, "2", &[]));
    assert_eq!(of_change(&sink.changes[0]), (false, vec![], strings(&["ns/h"])), "gone while it was away");
}

#[test]
fn a_push_whose_nonce_or_version_is_too_long_ends_its_stream() {
    let long = "n".repeat(4097);
    for push in [
        Resources { nonce: long.clone(), ..push(RULES, "1", &["a/b@1"]) },
        Resources { system_version_info: long, ..push(RULES, "1", &["a/b@1"]) },
    ] {
        let mut sink = Sink::of(&[RULES]).open();
        sink.receive(push);
        assert_eq!(sink.ended.len(), 1);
        assert_eq!(sink.ended[0].1.code(), Code::InvalidArgument);
        assert!(sink.changes.is_empty());
    }
}

/// TestSinkSendError
#[test]
fn a_change_that_is_accepted_when_its_stream_is_gone_is_held_all_the_same() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.receive(push(RULES, "1", &["ns/a@1"]));
    assert!(!sink.close(Status::unavailable("")).good);
    sink.decide(RULES, Ok(()));
    assert!(sink.sent.is_empty());
    assert_eq!(sink.held(RULES), ["ns/a@1"]);
}

/// TestUpdateResourceVersionTracking
#[test]
fn increments_add_update_and_remove() {
    let mut sink = Sink::of(&[RULES]).open();
    assert!(sink.accept(push(RULES, "1", &["ns/a@1", "ns/b@1"])).incremental, "after the whole, changes");
    sink.accept(increment(RULES, "2", &["ns/c@1"], &[]));
    assert_eq!(sink.held(RULES), ["ns/a@1", "ns/b@1", "ns/c@1"]);
    sink.accept(increment(RULES, "3", &["ns/a@2"], &[]));
    assert_eq!(sink.held(RULES), ["ns/a@2", "ns/b@1", "ns/c@1"]);
    sink.accept(increment(RULES, "4", &[], &["/ns/b", "ns/unknown"]));
    assert_eq!(sink.held(RULES), ["ns/a@2", "ns/c@1"]);
    assert_eq!(sink.changes.last().unwrap().removed, ["ns/b"], "what is not there cannot go");
    sink.accept(increment(RULES, "5", &["ns/a@3", "ns/b@2", "ns/d@1"], &["ns/c", "ns/d"]));
    assert_eq!(sink.held(RULES), ["ns/a@3", "ns/b@2"], "what is both named and removed is removed");
    sink.accept(push(RULES, "6", &["ns/e@1"]));
    assert_eq!(sink.held(RULES), ["ns/e@1"], "a full push replaces");
    sink.accept(push(RULES, "7", &[]));
    assert!(sink.held(RULES).is_empty());
}

#[test]
fn removed_resources_of_a_full_push_are_ignored() {
    let mut sink = Sink::of(&[RULES]).open();
    let mut full = push(RULES, "1", &["ns/a@1"]);
    full.removed_resources = strings(&["ns/a"]);
    sink.accept(full);
    assert_eq!(sink.held(RULES), ["ns/a@1"]);
}

#[test]
fn the_first_push_of_a_collection_is_an_event_also_when_it_is_empty() {
    let mut sink = Sink::of(&[RULES]).open();
    assert_eq!(sink.machine.pending().count(), 1);
    sink.accept(push(RULES, "1", &[]));
    assert_eq!(of_change(&sink.changes[0]), (true, vec![], vec![]));
    assert_eq!(sink.machine.pending().count(), 0, "now it is known to be empty");
}

#[test]
fn only_required_collections_are_waited_for() {
    let mut sink = Sink::with(&[RULES, HANDLERS], |options| options.collections[1].required = false).open();
    assert_eq!(sink.machine.pending().map(|name| &**name).collect::<Vec<_>>(), [RULES]);
    sink.accept(push(RULES, "1", &["ns/a@1"]));
    assert_eq!(sink.machine.pending().count(), 0);
}

/// Recorded of Galley: `tally v2` is 109 bytes long in one run of it and 108 in the next.
#[test]
fn an_equal_version_with_another_body_is_a_change() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.accept(push(RULES, "1", &["ns/a@v0"]));
    sink.reopen(2);
    let mut restarted = push(RULES, "1", &["ns/a@v0"]);
    restarted.resources[0].body.as_mut().unwrap().value = "other".into();
    sink.accept(restarted);
    assert_eq!(sink.changes.len(), 2);
}

#[test]
fn without_versions_bodies_are_compared() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.accept(push(RULES, "1", &["ns/a@", "ns/b@"]));
    sink.accept(push(RULES, "2", &["ns/b@", "ns/a@"]));
    assert_eq!(sink.changes.len(), 1);
    let mut other = push(RULES, "3", &["ns/a@", "ns/b@"]);
    other.resources[1].body.as_mut().unwrap().value = "other".into();
    sink.accept(other);
    assert_eq!(of_change(&sink.changes[1]), (false, strings(&["ns/b@"]), vec![]));
}

#[test]
fn a_resource_without_metadata_is_refused_and_nothing_crashes() {
    let mut sink = Sink::of(&[RULES]).open();
    let mut nameless = push(RULES, "1", &["ns/a@1", "ns/b@1"]);
    nameless.resources[0].metadata = None;
    nameless.resources[1].metadata = Some(Metadata::default());
    sink.receive(nameless);
    let told = "istio/policy/v1beta1/rules: resource 1: it has no name; resource 2: it has no name";
    assert_eq!(error(&sink.answer()), (3, told));
}

#[test]
fn a_name_that_comes_twice_with_different_content_is_refused() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.receive(push(RULES, "1", &["ns/a@1", "/ns/a@2"]));
    let told = "istio/policy/v1beta1/rules: ns/a: it comes twice, with different content";
    assert_eq!(error(&sink.answer()), (3, told));
    sink.accept(push(RULES, "2", &["ns/a@1", "ns/a@1"]));
    assert_eq!(sink.held(RULES), ["ns/a@1"]);
}

#[test]
fn bad_resources_are_left_as_they_were_when_they_are_to_be_skipped() {
    let mut sink = Sink::with(&[RULES], |options| options.skip_bad_resources = true).open();
    sink.accept(push(RULES, "1", &["ns/a@1", "ns/b@1", "ns/c@1"]));
    let mut bad = push(RULES, "2", &["ns/a@2", "ns/b@2", "ns/d@1", "ns/e..f@1"]);
    bad.resources[1].body = None;
    bad.resources[2].body = None;
    let answer = sink.accept(bad);
    assert_eq!((answer.response_nonce.as_str(), answer.error_detail), ("2", None));
    assert_eq!(sink.held(RULES), ["ns/a@2", "ns/b@1"]);
}

#[test]
fn an_increment_nobody_asked_for_is_taken_only_where_nothing_could_be_missed() {
    let mut sink = Sink::with(&[RULES], full).open();
    sink.accept(increment(RULES, "1", &["ns/a@1"], &[]));
    assert_eq!(sink.held(RULES), ["ns/a@1"], "it had nothing");

    // On a new stream it might lack removals: the stream is to begin anew.
    sink.close(Status::ok(""));
    sink.reopen(STREAM);
    sink.receive(increment(RULES, "1", &["ns/b@1"], &[]));
    let told = "istio/policy/v1beta1/rules: the push is incremental, but not based on what the sink has";
    assert_eq!(error(&sink.answer()), (3, told));
    assert_eq!(sink.ended.len(), 1);
    assert_eq!(sink.ended[0].1.code(), Code::FailedPrecondition);
    assert_eq!(sink.held(RULES), ["ns/a@1"]);
}

#[test]
fn increments_after_a_refusal_start_from_what_was_accepted() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.accept(push(RULES, "1", &["ns/a@1"]));
    sink.receive(increment(RULES, "2", &["ns/b@1"], &["ns/a"]));
    sink.decide(RULES, Err(whole("no")));
    assert!(!sink.answer().incremental, "the next is to be whole");
    sink.accept(increment(RULES, "3", &["ns/c@1"], &[]));
    assert_eq!(sink.held(RULES), ["ns/a@1", "ns/c@1"]);
    assert!(sink.ended.is_empty());
}

/// TestServerSink, second connection
#[test]
fn two_sources_of_the_same_content_do_not_disturb_each_other() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.reopen(2);
    sink.accept(push(RULES, "1", &["ns/a@1"]));
    let mut second = |push| {
        sink.machine.received(2, push, sink.now);
        sink.run();
        assert_eq!(sink.changes.len(), 1, "known already");
        sink.answer().response_nonce
    };
    assert_eq!(second(push(RULES, "x", &["ns/a@1"])), "x");
    assert!(
        !sink.accept(push(RULES, "2", &["ns/b@1"])).incremental,
        "the other may push something else meanwhile"
    );
    sink.machine.received(2, increment(RULES, "y", &["ns/c@1"], &[]), sink.now);
    sink.run();
    sink.decide(RULES, Ok(()));
    assert_eq!(sink.held(RULES), ["ns/a@1", "ns/c@1"], "an increment adds to what its own source has pushed");
    sink.sent.clear();
    sink.machine.closed(2, None, sink.now);
    assert!(sink.accept(push(RULES, "3", &["ns/c@1"])).incremental, "alone again");
}
