//! Changes.

use std::time::Duration;

use mixer_adapter_streams::{
    proto::envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource},
    stream::sink::Mode,
    xds::sink::Delta,
};
use tonic::Code;

use super::{
    client::{Client, options},
    messages::*,
};

const GATEWAYS: &str = "istio/networking/v1alpha3/gateways";
const NEW: &str = "networking.istio.io/v1/Gateway";
const OLD: &str = "networking.istio.io/v1alpha3/Gateway";

fn client(collections: &[&str]) -> Client<Delta> {
    Client::open(Delta::new, options(Mode::Delta, collections))
}

/// One that holds these rules.
fn holding(resources: &[&str]) -> Client<Delta> {
    let mut client = client(&[RULES]);
    client.receive(changes(RULE, "n0", resources, &[]));
    client.accept();
    client.sent();
    client
}

#[test]
fn changes_are_applied_to_what_is_held_and_acknowledged_by_nonce() {
    let mut client = client(&[RULES]);
    assert_eq!(client.sent(), [format!("ask {RULE} [] {{}}")], "a subscription to everything");
    client.receive(changes(RULE, "n1", &["ns/a@1", "ns/b@1"], &[]));
    assert_eq!(client.accept(), [format!("{RULES} = ns/a@1 ns/b@1")]);
    assert_eq!(client.sent(), [format!("ack {RULE} n1")]);
    client.receive(changes(RULE, "n2", &["ns/c@1", "ns/a@2"], &["ns/b", "ns/never-there"]));
    assert_eq!(client.accept(), [format!("{RULES} + ns/a@2 ns/c@1 -ns/b")]);
    assert_eq!(client.sent(), [format!("ack {RULE} n2")]);
    assert_eq!(client.holds(RULES), ["ns/a@2", "ns/c@1"]);
}

#[test]
fn a_new_stream_states_what_is_held_and_takes_what_changed_meanwhile() {
    let mut client = holding(&["ns/a@1", "ns/b@2"]);
    client.reopen();
    assert_eq!(client.sent(), [format!("ask {RULE} [] {{\"ns/a\": \"1\", \"ns/b\": \"2\"}}")]);
    client.receive(changes(RULE, "1", &["ns/c@1"], &["ns/a"]));
    assert_eq!(client.accept(), [format!("{RULES} + ns/c@1 -ns/a")]);
    assert_eq!(client.holds(RULES), ["ns/b@2", "ns/c@1"]);
}

#[test]
fn after_a_refusal_the_next_change_comes_on_a_stream_that_begins_with_what_was_pushed() {
    let mut client = holding(&["ns/a@1"]);
    client.receive(changes(RULE, "n1", &["ns/a@2", "ns/b@1"], &[]));
    client.refuse("ns/a", "bad");
    assert_eq!(client.sent(), [format!("nack {RULE} n1: {RULES}: ns/a: bad")]);
    assert!(client.ended.is_empty(), "the server may have nothing better");
    // The server may take ns/b for known: that it refused is not the sink's state.
    client.receive(changes(RULE, "n2", &["ns/a@3"], &[]));
    assert_eq!(client.accept(), [""; 0]);
    assert_eq!(client.ended.pop().map(|status| status.code()), Some(Code::FailedPrecondition));
    let refused = client.machine.collection(RULES).unwrap().refused().map(|(_, reason)| reason.to_string());
    assert_eq!(refused.as_deref(), Some("ns/a: bad"), "the reason people can do something about");
    client.reopen();
    assert_eq!(client.sent(), [format!("ask {RULE} [] {{\"ns/a\": \"2\", \"ns/b\": \"1\"}}")]);
    client.receive(changes(RULE, "1", &["ns/a@3", "ns/b@1"], &[]));
    assert_eq!(client.accept(), [format!("{RULES} + ns/a@3")], "the application keeps what it refused");
}

#[test]
fn asking_again_subscribes_to_everything_and_the_answer_is_taken_as_changes() {
    let resync = Some(Duration::from_secs(300));
    let options = options(Mode::Delta, &[RULES]).resync(resync);
    let mut client = Client::open(Delta::new, options);
    client.receive(changes(RULE, "n1", &["ns/a@1", "ns/b@1"], &[]));
    client.accept();
    client.sent();
    client.wait(Duration::from_secs(300));
    assert_eq!(client.sent(), [format!("ask {RULE} [\"*\"] {{}}")]);
    client.receive(changes(RULE, "n2", &["ns/a@2"], &[]));
    assert_eq!(client.accept(), [format!("{RULES} + ns/a@2")]);
    assert_eq!(client.holds(RULES), ["ns/a@2", "ns/b@1"]);
}

/// More names than servers read in one request: no versions are sent, and so the first response is everything.
#[test]
fn with_too_much_to_tell_the_first_response_is_the_whole_set() {
    let mut client = client(&[RULES]);
    let names: Vec<_> = (0..30_000).map(|n| format!("ns/a-rule-with-a-name-of-some-length-{n}@1")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    client.receive(changes(RULE, "n1", &names, &[]));
    client.accept();
    client.reopen();
    assert_eq!(client.sent(), [format!("ask {RULE} [] {{}}")]);
    client.receive(changes(RULE, "1", &["ns/b@1"], &[]));
    client.accept();
    assert_eq!(client.holds(RULES), ["ns/b@1"]);
    assert!(client.ended.is_empty());
}

/// Of a kind with two versions, no server gets names: it would report them as deleted where it has only the other version.
#[test]
fn a_kind_of_istio_is_looked_for_by_both_versions_anew_on_each_stream() {
    let mut client = client(&[GATEWAYS]);
    for stream in ["first", "second"] {
        assert_eq!(client.sent(), [format!("ask {NEW} [] {{}}")], "{stream}");
        client.receive(changes(NEW, "1", &[], &[]));
        assert_eq!(client.sent(), [format!("ack {NEW} 1"), format!("ask {OLD} [] {{}}")]);
        client.receive(changes(OLD, "2", &["ns/a@1"], &[]));
        client.accept();
        assert_eq!(client.holds(GATEWAYS), ["ns/a@1"], "{stream}");
        client.reopen();
    }
}

#[test]
fn what_comes_of_the_newer_version_while_the_older_is_asked_for_is_the_whole_set() {
    let mut client = client(&[GATEWAYS]);
    client.receive(changes(NEW, "1", &["ns/old@1"], &[]));
    client.accept();
    client.reopen();
    // Deleted while the sink was away, and another made since.
    client.receive(changes(NEW, "1", &[], &[]));
    client.receive(changes(NEW, "2", &["ns/new@1"], &[]));
    client.accept();
    assert_eq!(client.holds(GATEWAYS), ["ns/new@1"]);
}

/// Nacos sends bare resources without names, all of them each time.
#[test]
fn a_response_with_a_nameless_resource_is_the_whole_set() {
    let response = |nonce: &str, bodies: &[&'static str]| DeltaDiscoveryResponse {
        resources: bodies
            .iter()
            .map(|body| Resource { resource: Some(any("example.Entry", *body)), ..Resource::default() })
            .collect(),
        ..changes(RULE, nonce, &[], &[])
    };
    let mut client = client(&[RULES]);
    client.receive(response("n1", &["a", "b"]));
    client.accept();
    assert_eq!(client.holds(RULES).len(), 2);
    client.receive(response("n2", &["b"]));
    client.accept();
    assert_eq!(client.holds(RULES).len(), 1);
}

#[test]
fn a_resource_that_only_lives_on_is_nothing_new() {
    use prost_types::Duration;
    let mut client = holding(&["ns/a@1"]);
    let heartbeat =
        Resource { name: "ns/a".to_owned(), ttl: Some(Duration::default()), ..Resource::default() };
    client.receive(DeltaDiscoveryResponse { resources: vec![heartbeat], ..changes(RULE, "n1", &[], &[]) });
    assert_eq!(client.accept(), [""; 0]);
    assert_eq!(client.sent(), [format!("ack {RULE} n1")]);
    assert_eq!(client.holds(RULES), ["ns/a@1"]);
}

fn with_ttl(resource: &str, seconds: i64) -> Resource {
    let ttl = prost_types::Duration { seconds, nanos: 0 };
    Resource { ttl: Some(ttl), ..named(resource) }
}

/// That the resource of this name lives on, without its body.
fn heartbeat(nonce: &str, name: &str, seconds: i64) -> DeltaDiscoveryResponse {
    let resource = Resource { resource: None, ..with_ttl(&format!("{name}@1"), seconds) };
    DeltaDiscoveryResponse { resources: vec![resource], ..changes(RULE, nonce, &[], &[]) }
}

#[test]
fn a_resource_is_removed_when_its_ttl_ends_without_the_server() {
    let mut client = client(&[RULES]);
    let resources = vec![with_ttl("ns/a@1", 30), named("ns/b@1")];
    client.receive(DeltaDiscoveryResponse { resources, ..changes(RULE, "n0", &[], &[]) });
    client.accept();
    client.wait(Duration::from_secs(60));
    assert_eq!(client.accept(), [""; 0], "a server that is slow");
    client.reopen();
    client.wait(Duration::from_secs(20));
    client.receive(heartbeat("n1", "ns/a", 30));
    client.wait(Duration::from_secs(60));
    assert_eq!(client.accept(), [""; 0], "renewed");
    client.sent();
    client.machine.closed(2, None, client.now);
    client.wait(Duration::from_secs(29));
    assert_eq!(client.accept(), [""; 0]);
    client.wait(Duration::from_secs(1));
    assert_eq!(client.accept(), [format!("{RULES} + -ns/a")]);
    assert_eq!(client.holds(RULES), ["ns/b@1"]);
}

/// The next heartbeat may wait for the answer to the one before.
#[test]
fn heartbeats_are_answered_at_once_however_many_they_are() {
    let mut client = client(&[RULES]);
    let resources = vec![with_ttl("ns/a@1", 1)];
    client.receive(DeltaDiscoveryResponse { resources, ..changes(RULE, "n0", &[], &[]) });
    client.accept();
    client.sent();
    for number in 1..200 {
        client.receive(heartbeat(&format!("n{number}"), "ns/a", 1));
        assert_eq!(client.sent(), [format!("ack {RULE} n{number}")]);
    }
    assert_eq!(client.accept(), [""; 0]);
}

/// As when the server is away: time goes on without a stream.
#[test]
fn a_ttl_outlives_the_stream_and_ends_with_a_version_that_has_none() {
    let mut client = client(&[RULES]);
    let resources = vec![with_ttl("ns/a@1", 30), with_ttl("ns/b@1", 30)];
    client.receive(DeltaDiscoveryResponse { resources, ..changes(RULE, "n0", &[], &[]) });
    client.accept();
    client.receive(changes(RULE, "n1", &["ns/b@1"], &[]));
    client.accept();
    client.machine.closed(1, None, client.now);
    client.wait(Duration::from_secs(30));
    assert_eq!(client.accept(), [format!("{RULES} + -ns/a")]);
    assert_eq!(client.holds(RULES), ["ns/b@1"]);
}

#[test]
fn a_resource_has_the_version_of_its_envelope_or_else_of_its_metadata() {
    let mut client = client(&[RULES]);
    let around = Resource { version: "digest".to_owned(), ..named("ns/a@1") };
    let within = Resource { version: String::new(), ..named("ns/b@77") };
    client
        .receive(DeltaDiscoveryResponse { resources: vec![around, within], ..changes(RULE, "n1", &[], &[]) });
    client.accept();
    assert_eq!(client.holds(RULES), ["ns/a@1", "ns/b@77"]);
    client.reopen();
    assert_eq!(client.sent(), [format!("ask {RULE} [] {{\"ns/a\": \"digest\", \"ns/b\": \"77\"}}")]);
    // The server's version of refused content is not sent.
    let refused = Resource { version: "other".to_owned(), ..named("ns/a@2") };
    client.receive(DeltaDiscoveryResponse { resources: vec![refused], ..changes(RULE, "1", &[], &[]) });
    client.refuse("ns/a", "bad");
    client.reopen();
    assert_eq!(client.sent(), [format!("ask {RULE} [] {{\"ns/a\": \"2\", \"ns/b\": \"77\"}}")]);
}
