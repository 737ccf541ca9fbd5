//! The ten rules of docs/behaviour/xds.md#rules-for-servers.

use std::collections::BTreeSet;

use mixer_adapter_streams::{
    proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    stream::source::Meaning,
    xds::source::{DeltaStream, SotwStream},
};
use tonic::Code;

use super::{messages::*, world::*};

#[test]
fn rule_1_the_node_is_sent_once_and_counts_for_the_stream() {
    // Once explicit, a gRPC client does not subscribe to everything by naming nothing, for any type.
    let mut server = Sotw::new();
    server.set(CLUSTER, "a@1");
    server.set(LISTENER, "l@1");
    let mut first = DiscoveryRequest { node: node("n"), ..ask(LISTENER, "l") };
    first.node.as_mut().unwrap().user_agent_name = "gRPC Go".to_owned();
    server.request(first);
    server.pushes_well(LISTENER, "l@1", "l");
    server.ask(CLUSTER, "");
    server.rests();
}

#[test]
fn rule_2_a_request_with_another_nonce_than_the_last_is_ignored() {
    let mut server = Sotw::new();
    server.set(CLUSTER, "a@1");
    server.ask(CLUSTER, "");
    let first = server.pushes_well(CLUSTER, "a@1", "");
    server.set(CLUSTER, "a@2");
    let second = server.pushes(CLUSTER, "a@2");
    server.set(CLUSTER, "a@3");
    assert_eq!(server.request(ack(&first, "b")), Meaning::Stale);
    assert_eq!(server.request(nack(&first, "", "")), Meaning::Stale);
    server.rests();
    server.ack(&second, "");
    server.pushes(CLUSTER, "a@3");
}

#[test]
fn rule_2_the_version_of_a_first_request_is_no_acceptance() {
    let mut server = Sotw::new();
    server.set(CLUSTER, "a@1");
    server.ask(CLUSTER, "");
    let before = server.pushes_well(CLUSTER, "a@1", "");
    server.reconnect();
    let again = DiscoveryRequest { version_info: before.version_info, ..ask(CLUSTER, "") };
    assert_eq!(server.request(again), Meaning::Requested);
    let push = server.pushes(CLUSTER, "a@1");
    assert_eq!(push.nonce, "1", "nonces are those of the stream");
}

/// istiod, as a client, sends the time for a nonce (docs/behaviour/xds.md#istiod-as-a-sink).
#[test]
fn rule_2_a_type_not_seen_on_the_stream_is_answered_whatever_the_nonce() {
    let mut server = Sotw::new();
    server.set(CLUSTER, "a@1");
    let first = DiscoveryRequest {
        response_nonce: "2026-11-21 18:00:00".to_owned(),
        version_info: "7".to_owned(),
        ..ask(CLUSTER, "")
    };
    assert_eq!(server.request(first), Meaning::Requested);
    server.pushes(CLUSTER, "a@1");

    let mut server = Delta::new();
    server.set(CLUSTER, "a@1");
    let first = DeltaDiscoveryRequest { response_nonce: "old".to_owned(), ..subscribe(CLUSTER, "", "") };
    assert_eq!(server.request(first), Meaning::Requested);
    server.pushes(CLUSTER, "a@1");
}

#[test]
fn rule_2_a_request_without_a_nonce_asks_for_all_again() {
    let mut server = Sotw::new();
    server.set(ROUTE, "a@1 b@1");
    server.ask(ROUTE, "a b");
    let push = server.pushes(ROUTE, "a@1 b@1");
    server.ask(ROUTE, "a b");
    server.rests();
    server.ack(&push, "a b");
    server.rests();
    server.ask(ROUTE, "a b");
    server.pushes(ROUTE, "a@1 b@1");
}

#[test]
fn rule_3_what_is_refused_has_an_error_and_is_not_sent_again() {
    let mut server = Sotw::new();
    server.set(ROUTE, "a@1");
    server.ask(ROUTE, "a");
    let first = server.pushes_well(ROUTE, "a@1", "a");
    server.set(ROUTE, "a@bad");
    let bad = server.pushes(ROUTE, "a@bad");
    // The version it says it has is that of the push it accepted before, or even that which it refuses.
    for version in [&first.version_info, &bad.version_info] {
        let mut server = Sotw::new();
        server.set(ROUTE, "a@1");
        server.ask(ROUTE, "a");
        server.pushes_well(ROUTE, "a@1", "a");
        server.set(ROUTE, "a@bad");
        let bad = server.pushes(ROUTE, "a@bad");
        let refusal = nack(&bad, version, "a");
        assert_eq!(server.request(refusal.clone()), Meaning::Refused(error("no")));
        server.rests();
        assert_eq!(server.request(refusal), Meaning::Stale, "it was answered");
        server.rests();
        server.set(ROUTE, "a@2");
        server.pushes_well(ROUTE, "a@2", "a");
    }

    let mut server = Delta::new();
    server.set(ROUTE, "a@1 b@1");
    server.subscribe(ROUTE, "a b", "");
    server.pushes_well(ROUTE, "a@1 b@1");
    server.set(ROUTE, "a@bad b@2");
    let bad = server.pushes(ROUTE, "a@bad b@2");
    assert_eq!(server.request(refused(&bad)), Meaning::Refused(error("no")));
    server.rests();
    server.subscribe(ROUTE, "c", "");
    server.pushes_well(ROUTE, "-c");
    server.set(ROUTE, "a@2 b@2");
    server.pushes_well(ROUTE, "a@2 b@2");
    server.rests();
}

#[test]
fn rule_3_what_was_refused_and_is_removed_is_sent() {
    // A client may have taken some of what it refused.
    let mut server = Delta::new();
    server.set(CLUSTER, "a@1 b@1");
    server.subscribe(CLUSTER, "", "");
    server.pushes_well(CLUSTER, "a@1 b@1");
    server.set(CLUSTER, "a@2 b@bad c@1");
    let bad = server.pushes(CLUSTER, "a@2 b@bad c@1");
    server.request(refused(&bad));
    server.set(CLUSTER, "a@1 b@1");
    server.pushes_well(CLUSTER, "a@1 b@1 -c");
    server.rests();
}

#[test]
fn rule_4_only_changes_and_new_names_are_answered() {
    let mut server = Sotw::new();
    server.set(ROUTE, "a@1 b@1 c@1");
    server.ask(ROUTE, "a");
    let push = server.pushes_well(ROUTE, "a@1", "a");
    assert_eq!(server.request(ack(&push, "a")), Meaning::Stale);
    server.set(ROUTE, "a@1 b@1 c@2");
    server.rests();
    let more = DiscoveryRequest { response_nonce: push.nonce, ..ask(ROUTE, "a b") };
    assert_eq!(server.request(more), Meaning::Requested);
    let push = server.pushes_well(ROUTE, "b@1", "a b");
    assert_eq!(server.request(ack(&push, "b")), Meaning::Stale, "fewer names are no question");
    server.rests();
    server.set(ROUTE, "a@2 b@2 c@2");
    server.pushes_well(ROUTE, "b@2", "b");
}

#[test]
fn rule_4_names_in_an_acceptance_are_asked_for() {
    let mut server = Sotw::new();
    server.set(ROUTE, "a@1 b@1");
    server.ask(ROUTE, "a");
    server.pushes_well(ROUTE, "a@1", "a b");
    server.pushes_well(ROUTE, "b@1", "a b");
    server.rests();
}

#[test]
fn rule_4_one_push_of_a_type_is_under_way_and_the_newest_follows_its_acceptance() {
    let mut server = Sotw::new();
    server.set(CLUSTER, "a@1");
    server.ask(CLUSTER, "");
    let push = server.pushes(CLUSTER, "a@1");
    server.set(CLUSTER, "a@2");
    server.set(CLUSTER, "a@3");
    server.rests();
    server.ack(&push, "");
    server.pushes_well(CLUSTER, "a@3", "");
    server.rests();
}

#[test]
fn rule_5_listeners_and_clusters_are_whole_and_routes_and_endpoints_are_what_is_new() {
    for (type_url, after) in
        [(LISTENER, "a@1 b@2"), (CLUSTER, "a@1 b@2"), (ENTRY, "a@1 b@2"), (ROUTE, "b@2"), (ENDPOINT, "b@2")]
    {
        let mut server = Sotw::new();
        server.set(type_url, "a@1 b@1 c@1");
        server.ask(type_url, "a b c");
        server.pushes_well(type_url, "a@1 b@1 c@1", "a b c");
        server.set(type_url, "a@1 b@2");
        server.pushes_well(type_url, after, "a b c");
    }
}

#[test]
fn rule_5_nothing_is_an_answer_where_a_missing_resource_is_a_deletion() {
    let mut server = Sotw::new();
    server.set(ENDPOINT, "a@1");
    server.ask(CLUSTER, "");
    server.pushes_well(CLUSTER, "", "");
    server.ask(ROUTE, "a");
    server.rests();
    server.set(ROUTE, "a@1");
    server.pushes_well(ROUTE, "a@1", "a");
    server.set(ROUTE, "");
    server.rests();
}

#[test]
fn rule_6_names_end_what_naming_nothing_began() {
    let mut server = Sotw::new();
    server.set(CLUSTER, "a@1 b@1");
    server.ask(CLUSTER, "");
    server.pushes_well(CLUSTER, "a@1 b@1", "b");
    server.set(CLUSTER, "a@2 b@2");
    server.pushes_well(CLUSTER, "b@2", "");
    server.set(CLUSTER, "a@3 b@3");
    server.rests();
}

#[test]
fn rule_7_subscriptions_change_whatever_the_nonce() {
    let mut server = Delta::new();
    server.set(ROUTE, "a@1 b@1 c@1");
    server.subscribe(ROUTE, "a b", "");
    server.pushes_well(ROUTE, "a@1 b@1");
    let stale = DeltaDiscoveryRequest { response_nonce: "99".to_owned(), ..subscribe(ROUTE, "c", "a") };
    assert_eq!(server.request(stale.clone()), Meaning::Requested);
    server.pushes_well(ROUTE, "c@1");
    server.set(ROUTE, "a@2 b@2 c@2");
    server.pushes_well(ROUTE, "b@2 c@2");
    let nothing = DeltaDiscoveryRequest {
        resource_names_subscribe: vec![],
        resource_names_unsubscribe: vec![],
        ..stale
    };
    assert_eq!(server.request(nothing), Meaning::Stale);
}

#[test]
fn rule_7_of_what_a_client_has_it_gets_what_differs() {
    let mut server = Delta::new();
    server.set(CLUSTER, "a@1 b@1 c@1");
    server.subscribe(CLUSTER, "", "");
    let push = server.pushes_well(CLUSTER, "a@1 b@1 c@1");
    let versions = push.resources.iter().map(|resource| (resource.name.clone(), resource.version.clone()));
    let resume =
        DeltaDiscoveryRequest { initial_resource_versions: versions.collect(), ..subscribe(CLUSTER, "", "") };
    server.reconnect();
    server.request(resume.clone());
    server.pushes_well(CLUSTER, "");
    server.set(CLUSTER, "a@1 b@2 d@1");
    server.pushes_well(CLUSTER, "b@2 d@1 -c");
    server.reconnect();
    server.request(resume.clone());
    server.pushes_well(CLUSTER, "b@2 d@1 -c");
    server.rests();

    // By names: what is subscribed and not known to the client is sent, or reported as missing.
    server.reconnect();
    let named = DeltaDiscoveryRequest { resource_names_subscribe: list("a c d e"), ..resume };
    server.request(named.clone());
    server.pushes_well(CLUSTER, "d@1 -c -e");
    server.reconnect();
    server.request(DeltaDiscoveryRequest { resource_names_subscribe: list("a"), ..named });
    server.rests();
}

#[test]
fn rule_7_versions_are_those_of_the_resources() {
    let mut server = Delta::new();
    server.set(CLUSTER, "a@1 b@1");
    server.subscribe(CLUSTER, "", "");
    let first = server.pushes_well(CLUSTER, "a@1 b@1");
    server.set(CLUSTER, "a@2 b@1");
    let second = server.pushes_well(CLUSTER, "a@2");
    server.subscribe(CLUSTER, "b", "");
    let third = server.pushes_well(CLUSTER, "b@1");
    assert_ne!(first.resources[0].version, second.resources[0].version);
    assert_eq!(first.resources[1].version, third.resources[0].version);
    assert!(!third.resources[0].version.is_empty());
    assert_eq!([&*first.nonce, &*second.nonce, &*third.nonce], ["1", "2", "3"]);
}

#[test]
fn rule_7_a_name_subscribed_to_again_is_sent_again() {
    let mut server = Delta::new();
    server.set(ENDPOINT, "a@1 b@1");
    server.subscribe(ENDPOINT, "a b", "");
    server.pushes_well(ENDPOINT, "a@1 b@1");
    server.subscribe(ENDPOINT, "a", "");
    server.pushes_well(ENDPOINT, "a@1");
    server.rests();
    server.subscribe(ENDPOINT, "*", "");
    server.pushes_well(ENDPOINT, "a@1 b@1");
    server.subscribe(ENDPOINT, "*", "");
    server.pushes_well(ENDPOINT, "a@1 b@1");
}

#[test]
fn rule_7_a_name_that_does_not_exist_is_removed_at_once_and_sent_when_it_does() {
    let mut server = Delta::new();
    server.set(ROUTE, "a@1");
    server.subscribe(ROUTE, "a b", "");
    server.pushes_well(ROUTE, "a@1 -b");
    server.rests();
    server.set(ROUTE, "a@1 b@1");
    server.pushes_well(ROUTE, "b@1");
    server.set(ROUTE, "a@1");
    server.pushes_well(ROUTE, "-b");
}

#[test]
fn rule_7_to_unsubscribe_from_a_name_while_everything_is_wanted_is_answered() {
    let mut server = Delta::new();
    server.set(CLUSTER, "a@1");
    server.subscribe(CLUSTER, "* a b", "");
    server.pushes_well(CLUSTER, "a@1 -b");
    server.subscribe(CLUSTER, "", "a");
    server.pushes_well(CLUSTER, "a@1");
    server.subscribe(CLUSTER, "", "b");
    server.pushes_well(CLUSTER, "-b");
    server.subscribe(CLUSTER, "", "*");
    server.rests();
    server.set(CLUSTER, "a@2");
    server.rests();
}

#[test]
fn rule_9_what_is_subscribed_to_again_while_it_warms_is_answered() {
    // State of the world: the endpoints of a cluster that was pushed anew are asked for by the nonce they were accepted by.
    let mut server = Sotw::new();
    server.set(CLUSTER, "c@1");
    server.set(ENDPOINT, "c@e");
    server.ask(CLUSTER, "");
    server.pushes_well(CLUSTER, "c@1", "");
    server.ask(ENDPOINT, "c");
    let endpoints = server.pushes_well(ENDPOINT, "c@e", "c");
    assert_eq!(server.request(ack(&endpoints, "c")), Meaning::Stale, "nothing warms");
    server.rests();
    server.set(CLUSTER, "c@2");
    server.pushes_well(CLUSTER, "c@2", "");
    assert_eq!(server.request(ack(&endpoints, "c")), Meaning::Requested);
    let endpoints = server.pushes_well(ENDPOINT, "c@e", "c");
    assert_eq!(server.request(ack(&endpoints, "c")), Meaning::Stale);
    server.rests();
}

#[test]
fn rule_10_a_response_names_a_resource_once() {
    let mut server = Delta::new();
    server.set(CLUSTER, "a@1 a@2 b@1");
    server.subscribe(CLUSTER, "* a a", "");
    server.pushes_well(CLUSTER, "a@2 b@1");
    server.set(CLUSTER, "a@3 b@1");
    server.subscribe(CLUSTER, "a *", "a");
    server.pushes_well(CLUSTER, "a@3 b@1");

    let mut server = Sotw::new();
    server.set(CLUSTER, "a@1 b@1");
    server.ask(CLUSTER, "* a a b");
    let push = server.pushes(CLUSTER, "a@1 b@1");
    let bodies: BTreeSet<_> = push.resources.iter().map(text).collect();
    assert_eq!(bodies.len(), push.resources.len());
}

#[test]
fn a_stream_of_all_types_needs_a_type_and_a_stream_of_one_takes_no_other() {
    let code = |result: Result<_, tonic::Status>| result.map_err(|status| status.code());
    assert_eq!(code(SotwStream::new(None).requested(ask("", ""))), Err(Code::InvalidArgument));
    assert_eq!(code(DeltaStream::new(None).requested(subscribe("", "", ""))), Err(Code::InvalidArgument));
    assert_eq!(code(SotwStream::new(Some(ROUTE)).requested(ask("", "a"))), Ok(Meaning::Requested));
    assert_eq!(code(SotwStream::new(Some(ROUTE)).requested(ask(ROUTE, "a"))), Ok(Meaning::Requested));
    assert_eq!(code(SotwStream::new(Some(ROUTE)).requested(ask(CLUSTER, ""))), Err(Code::InvalidArgument));
    assert_eq!(code(DeltaStream::new(Some(ROUTE)).requested(subscribe("", "a", ""))), Ok(Meaning::Requested));
}

#[test]
fn types_on_a_stream_have_a_limit() {
    let mut stream = SotwStream::new(None);
    for number in 0..100 {
        stream.requested(ask(&format!("type.googleapis.com/a.b.C{number}"), "")).unwrap();
    }
    stream.requested(ask("type.googleapis.com/a.b.C7", "x")).unwrap();
    let error = stream.requested(ask("type.googleapis.com/a.b.C100", "")).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
}
