//! The sink's state machine.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use mixer_adapter_config::{
    mcp::{
        Change,
        sink::{
            Closed, Machine, Mode, Nack, NackReason, Output, ProposalId, SinkDecision, SinkOptions, StreamId,
        },
    },
    proto::istio::mcp::v1alpha1::{Metadata, RequestResources, Resources},
};
use tonic::{Code, Status};

use crate::messages::*;

const STREAM: StreamId = 1;

/// A sink without sockets: what it sends and asks piles up here.
struct Sink {
    machine: Machine,
    now: Instant,
    sent: Vec<RequestResources>,
    changes: Vec<Change>,
    /// The last proposal of each collection.
    proposals: BTreeMap<String, ProposalId>,
    ended: Vec<(StreamId, Status)>,
    accepted: usize,
}

impl Sink {
    fn of(collections: &[&str]) -> Self {
        Self::with(collections, |_| {})
    }

    fn with(collections: &[&str], options: impl FnOnce(&mut SinkOptions)) -> Self {
        let mut all = SinkOptions::new("sink", collections.iter().copied());
        options(&mut all);
        Self {
            machine: Machine::new(all),
            now: Instant::now(),
            sent: vec![],
            changes: vec![],
            proposals: BTreeMap::new(),
            ended: vec![],
            accepted: 0,
        }
    }

    /// One that has opened a stream and asked for everything.
    fn open(mut self) -> Self {
        self.reopen(STREAM);
        self
    }

    fn reopen(&mut self, id: StreamId) -> Vec<RequestResources> {
        self.machine.opened(id, self.now);
        self.run();
        std::mem::take(&mut self.sent)
    }

    fn run(&mut self) {
        while let Some(output) = self.machine.poll(self.now) {
            match output {
                Output::Send(_, request) => self.sent.push(request),
                Output::Decide(id, change) => {
                    self.proposals.insert(change.collection.to_string(), id);
                    self.changes.push(change);
                }
                Output::End(id, status) => self.ended.push((id, status)),
                Output::Accepted { .. } => self.accepted += 1,
            }
        }
    }

    fn receive(&mut self, push: Resources) {
        self.machine.received(STREAM, push, self.now);
        self.run();
    }

    fn decide(&mut self, collection: &str, verdict: Result<(), Nack>) {
        self.settle(collection, verdict.map_or_else(SinkDecision::Refused, |()| SinkDecision::Live));
    }

    fn settle(&mut self, collection: &str, decision: SinkDecision) {
        self.machine.decided(collection, self.proposals[collection], decision, self.now);
        self.run();
    }

    /// A push that the application accepts if it is asked; returns the one answer to it.
    fn accept(&mut self, push: Resources) -> RequestResources {
        let collection = push.collection.clone();
        let asked = self.changes.len();
        self.receive(push);
        if self.changes.len() > asked {
            self.decide(&collection, Ok(()));
        }
        self.answer()
    }

    fn answer(&mut self) -> RequestResources {
        assert_eq!(self.sent.len(), 1, "{:?}", self.sent);
        self.sent.remove(0)
    }

    fn held(&self, collection: &str) -> Vec<String> {
        let view = self.machine.collection(collection).unwrap();
        view.resources().map(|r| format!("{}@{}", r.name, r.version)).collect()
    }

    fn sleep(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.run();
    }

    fn close(&mut self, status: Status) -> Closed {
        self.machine.closed(STREAM, Some(&status), self.now)
    }
}

fn full(mode: &mut SinkOptions) {
    mode.mode = Mode::Full;
}

fn error(request: &RequestResources) -> (i32, &str) {
    let error = request.error_detail.as_ref().unwrap();
    (error.code, &error.message)
}

fn of_change(change: &Change) -> (bool, Vec<String>, Vec<String>) {
    let changed = change.resources.iter().map(|r| format!("{}@{}", r.name, r.version)).collect();
    (change.full, changed, change.removed.clone())
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn whole(reason: &str) -> Nack {
    Nack::whole(reason)
}

fn fault(resource: &str, reason: &str) -> Nack {
    Nack { reasons: vec![NackReason { resource: resource.to_owned(), text: reason.to_owned() }] }
}

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
    let reasons = (0..10_000).map(|n| NackReason { resource: format!("ns/{n}"), text: "bad".to_owned() });
    sink.receive(push(RULES, "2", &["ns/a@2"]));
    sink.decide(RULES, Err(Nack { reasons: reasons.collect() }));
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
    let mut bad = push(RULES, "2", &["ns/a@2", "ns/b@2", "ns/d@1", "ns/e_@1"]);
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

#[test]
fn a_source_that_floods_with_increments_is_cut_off() {
    let mut sink = Sink::of(&[RULES]).open();
    for nonce in 0..9 {
        sink.receive(increment(RULES, &nonce.to_string(), &["ns/a@1"], &[]));
        assert!(sink.ended.is_empty());
    }
    sink.receive(increment(RULES, "9", &["ns/a@1"], &[]));
    assert_eq!(sink.ended[0].1.code(), Code::ResourceExhausted);
}

#[test]
fn a_source_that_repeats_itself_is_answered_ever_more_slowly() {
    for bad in [false, true] {
        let mut sink = Sink::of(&[RULES]).open();
        sink.accept(push(RULES, "1", &["ns/a@1"]));
        let mut answers = 0;
        for second in 0..60 {
            for _ in 0..100 {
                let mut again = push(RULES, "", &["ns/a@1"]);
                if bad {
                    again.resources[0].body = None;
                }
                sink.receive(again);
                answers += sink.sent.drain(..).len();
            }
            assert!(answers <= 11 + second / 5, "{answers} answers after {second} s");
            sink.sleep(1);
        }
        answers += sink.sent.len();
        assert!(answers >= 20, "it is answered still: {answers}");
        sink.sent.clear();
        sink.sleep(10);
        sink.sent.clear();
        sink.accept(push(RULES, "2", &["ns/a@2"]));
    }
}

#[test]
fn at_most_100_requests_go_out_at_once() {
    let collections: Vec<String> = (0..130).map(|n| format!("c/{n:03}")).collect();
    let mut sink = Sink::of(&collections.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(sink.reopen(STREAM).len(), 100);
    let wakeup = sink.machine.wakeup(sink.now).unwrap();
    assert_eq!(wakeup - sink.now, Duration::from_millis(100));
    sink.sleep(1);
    assert_eq!(sink.sent.len(), 10);
    sink.sleep(2);
    assert_eq!(sink.sent.len(), 30);
    assert_eq!(sink.machine.wakeup(sink.now), None);
}

#[test]
fn a_collection_the_source_does_not_serve_is_left_out_and_tried_again_after_a_while() {
    let mut sink = Sink::of(&[RULES, HANDLERS]).open();
    let refusal = || Status::invalid_argument(format!("unsupported collection \"{HANDLERS}\""));
    let closed = sink.close(refusal());
    assert_eq!(closed, Closed { good: false, unsupported: Some(HANDLERS.into()) });
    sink.run();
    assert_eq!(of_change(&sink.changes[0]), (true, vec![], vec![]), "it counts as empty");
    sink.decide(HANDLERS, Ok(()));
    assert_eq!(sink.machine.pending().map(|name| &**name).collect::<Vec<_>>(), [RULES]);
    let requests = sink.reopen(STREAM);
    assert_eq!(requests.iter().map(|r| r.collection.as_str()).collect::<Vec<_>>(), [RULES]);
    assert!(sink.machine.collection(HANDLERS).unwrap().unsupported());

    sink.sleep(599);
    assert!(sink.sent.is_empty());
    assert_eq!(sink.machine.wakeup(sink.now), Some(sink.now + Duration::from_secs(1)));
    sink.sleep(1);
    let request = sink.answer();
    assert_eq!((request.collection.as_str(), request.response_nonce.as_str()), (HANDLERS, ""));
    sink.close(refusal());
    assert_eq!(sink.reopen(STREAM).len(), 1, "still not");

    sink.sleep(600);
    sink.answer();
    sink.accept(push(HANDLERS, "1", &[]));
    assert!(!sink.machine.collection(HANDLERS).unwrap().unsupported());
    assert_eq!(sink.reopen(2).len(), 2);
}

#[test]
fn other_endings_leave_no_collection_out() {
    let mut sink = Sink::of(&[RULES]).open();
    for status in [
        Status::unavailable(format!("unsupported collection \"{RULES}\"")),
        Status::invalid_argument("unsupported collection \"of another\""),
        Status::invalid_argument("something else"),
    ] {
        assert_eq!(sink.close(status).unsupported, None);
        assert_eq!(sink.reopen(STREAM).len(), 1);
    }
}

#[test]
fn what_a_cache_kept_is_offered_before_any_stream_and_compared_with_what_comes() {
    let resource = |name: &str| {
        let mut first = Sink::of(&[RULES]).open();
        first.accept(push(RULES, "1", &[name]));
        let kept: Vec<_> = first.machine.collection(RULES).unwrap().resources().cloned().collect();
        Arc::clone(&kept[0])
    };
    let mut sink = Sink::of(&[RULES, HANDLERS]);
    sink.machine.restore(RULES, "7".to_owned(), vec![resource("ns/a@1")]);
    sink.machine.restore("not/wanted", "7".to_owned(), vec![resource("ns/a@1")]);
    sink.run();
    assert_eq!(of_change(&sink.changes[0]), (true, strings(&["ns/a@1"]), vec![]));
    sink.decide(RULES, Ok(()));
    assert_eq!(sink.machine.pending().map(|name| &**name).collect::<Vec<_>>(), [HANDLERS]);
    assert!(!sink.machine.collection(RULES).unwrap().synced());

    let mut sink = sink.open();
    assert_eq!(sink.accept(push(RULES, "1", &["ns/a@1"])).response_nonce, "1");
    assert_eq!(sink.changes.len(), 1, "it is what was kept");
    assert!(sink.machine.collection(RULES).unwrap().synced());
    sink.accept(push(RULES, "2", &[]));
    assert_eq!(of_change(&sink.changes[1]), (false, vec![], strings(&["ns/a"])));
}

#[test]
fn a_cache_the_application_refuses_is_what_pushes_are_compared_with() {
    let mut sink = Sink::of(&[RULES]);
    sink.machine.restore(RULES, "7".to_owned(), vec![]);
    sink.run();
    sink.decide(RULES, Err(whole("of an older version")));
    let mut sink = sink.open();
    sink.accept(push(RULES, "1", &["ns/a@1"]));
    assert_eq!(of_change(&sink.changes[1]), (false, strings(&["ns/a@1"]), vec![]));
    assert_eq!(sink.held(RULES), ["ns/a@1"]);
}

#[test]
fn the_last_refusal_can_be_seen_until_something_is_accepted() {
    let mut sink = Sink::of(&[RULES]).open();
    sink.receive(push(RULES, "1", &["ns/a@1"]));
    sink.decide(RULES, Err(fault("ns/a", "bad")));
    let view = sink.machine.collection(RULES).unwrap();
    assert_eq!(view.refused(), Some(("version of 1", &fault("ns/a", "bad"))));
    sink.sent.clear();
    sink.accept(push(RULES, "2", &["ns/a@2"]));
    let view = sink.machine.collection(RULES).unwrap();
    assert_eq!((view.refused(), view.version()), (None, "version of 2"));
}
