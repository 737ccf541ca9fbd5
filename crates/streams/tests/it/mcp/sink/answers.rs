//! The order of answers, and what becomes of pushes that are not in use.

use super::*;

#[test]
fn answers_keep_the_order_of_pushes() {
    let mut sink = Sink::of(&[RULES, HANDLERS]).open();
    sink.receive(push(RULES, "1", &["ns/a@1"]));
    sink.receive(push(HANDLERS, "2", &["ns/h@1"]));
    sink.receive(push("no/such", "3", &[]));
    sink.decide(HANDLERS, Ok(()));
    assert!(sink.sent.is_empty(), "the first push is not decided on");
    sink.decide(RULES, Ok(()));
    let nonces: Vec<_> = sink.sent.iter().map(|request| request.response_nonce.as_str()).collect();
    assert_eq!(nonces, ["1", "2", "3"]);
}

#[test]
fn a_full_push_replaces_those_that_wait_and_all_of_them_are_answered() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.receive(push(RULES, "1", &["ns/a@1"]));
    // A source that does not wait for answers, as that of Nacos.
    sink.receive(push(RULES, "3", &["ns/a@2"]));
    sink.receive(push(RULES, "4", &["ns/a@3"]));
    assert_eq!(sink.changes.len(), 1);
    sink.decide(RULES, Ok(()));
    assert_eq!(sink.answer().response_nonce, "1");
    assert_eq!(of_change(&sink.changes[1]).1, ["ns/a@3"], "what came between is moot");
    sink.decide(RULES, Ok(()));
    let nonces: Vec<_> = sink.sent.iter().map(|request| request.response_nonce.as_str()).collect();
    assert_eq!(nonces, ["3", "4"]);
}

#[test]
fn a_push_that_waits_for_other_configuration_is_acknowledged_and_nothing_of_it_is_live() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.receive(push(RULES, "1", &["ns/a@1"]));
    sink.settle(RULES, SinkDecision::Pending);
    assert_eq!(sink.answer().error_detail, None);
    let view = sink.machine.collection(RULES).unwrap();
    assert_eq!((view.pending(), view.version()), (Some("version of 1"), ""));
    assert_eq!(sink.accepted, 0);

    sink.settle(RULES, SinkDecision::Live);
    assert!(sink.sent.is_empty(), "each push is answered once");
    let view = sink.machine.collection(RULES).unwrap();
    assert_eq!((view.pending(), view.version()), (None, "version of 1"));
    assert_eq!((sink.held(RULES), sink.accepted), (strings(&["ns/a@1"]), 1));
}

#[test]
fn a_refused_push_that_becomes_live_is_not_answered_again() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.accept(push(RULES, "1", &["ns/a@1"]));
    sink.receive(push(RULES, "2", &["ns/a@2"]));
    sink.decide(RULES, Err(fault("ns/a", "there is no handler ns/h")));
    assert!(sink.answer().error_detail.is_some());
    assert_eq!(sink.held(RULES), ["ns/a@1"]);
    sink.decide(RULES, Ok(()));
    assert!(sink.sent.is_empty());
    assert_eq!(sink.held(RULES), ["ns/a@2"]);
    assert_eq!(sink.machine.collection(RULES).unwrap().refused(), None);
}

#[test]
fn a_push_that_equals_a_refused_one_is_refused_for_the_same_reason_without_another_offer() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.receive(push(RULES, "1", &["ns/a@1"]));
    sink.decide(RULES, Err(fault("ns/a", "there is no handler ns/h")));
    sink.sent.clear();
    sink.reopen(2);
    sink.machine.received(2, push(RULES, "1", &["ns/a@1"]), sink.now);
    sink.run();
    assert_eq!(error(&sink.answer()).1, "istio/policy/v1beta1/rules: ns/a: there is no handler ns/h");
    assert_eq!(sink.changes.len(), 1);
}

#[test]
fn pushes_after_a_refused_one_are_compared_with_it_as_the_application_keeps_it() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.accept(push(RULES, "1", &["ns/a@1"]));
    sink.receive(push(RULES, "2", &["ns/b@1"]));
    sink.decide(RULES, Err(whole("no")));
    sink.sent.clear();
    sink.accept(push(RULES, "3", &["ns/a@1"]));
    assert_eq!(of_change(&sink.changes[2]), (false, strings(&["ns/a@1"]), strings(&["ns/b"])));
    assert_eq!(sink.held(RULES), ["ns/a@1"]);
}

#[test]
fn what_cannot_be_read_is_dropped_and_the_next_push_compared_with_what_was_offered_before() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.accept(push(RULES, "1", &["ns/a@1"]));
    sink.receive(push(RULES, "2", &["ns/b@1"]));
    sink.settle(RULES, SinkDecision::Unreadable(fault("ns/b", "its body is not a valid Rule")));
    assert!(sink.answer().error_detail.is_some());
    sink.accept(push(RULES, "3", &["ns/c@1"]));
    assert_eq!(of_change(&sink.changes[2]), (false, strings(&["ns/c@1"]), strings(&["ns/a"])));
}
