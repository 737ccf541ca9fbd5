//! Make before break: docs/behaviour/xds.md#rule-8-order.

use std::time::{Duration, Instant};

use super::{messages::*, world::*};

/// Another cluster, endpoint, listener and route for each there was.
fn replace(change: &mut impl FnMut(&str, &str)) {
    change(ROUTE, "r2@1");
    change(LISTENER, "l@2");
    change(ENDPOINT, "c2@1");
    change(CLUSTER, "c2@1");
}

fn first(change: &mut impl FnMut(&str, &str)) {
    change(ROUTE, "r1@1");
    change(LISTENER, "l@1");
    change(ENDPOINT, "c1@1");
    change(CLUSTER, "c1@1");
}

/// A client that has all of the first.
fn sotw() -> Sotw {
    let mut server = Sotw::new();
    first(&mut |type_url, texts| server.set(type_url, texts));
    for (type_url, names, texts) in
        [(ROUTE, "r1", "r1@1"), (LISTENER, "", "l@1"), (ENDPOINT, "c1", "c1@1"), (CLUSTER, "", "c1@1")]
    {
        server.ask(type_url, names);
        server.pushes_well(type_url, texts, names);
    }
    server
}

#[test]
fn rule_8_what_changed_together_goes_out_in_order_and_what_is_gone_last() {
    let mut server = sotw();
    server.set(ROUTE, "r1@2");
    server.set(LISTENER, "l@2");
    server.set(ENDPOINT, "c1@2");
    server.set(CLUSTER, "c2@1");
    let both = server.pushes(CLUSTER, "c2@1 c1@1");
    let endpoints = server.pushes(ENDPOINT, "c1@2");
    server.rests();
    server.ack(&both, "");
    server.rests();
    server.ack(&endpoints, "c1");
    let listeners = server.pushes(LISTENER, "l@2");
    let routes = server.pushes(ROUTE, "r1@2");
    server.rests();
    server.ack(&listeners, "");
    server.rests();
    server.ack(&routes, "r1");
    let removed = server.pushes(CLUSTER, "c2@1");
    assert_ne!(removed.version_info, both.version_info);
}

#[test]
fn rule_8_what_is_gone_stays_until_the_routes_that_are_asked_for_are_accepted() {
    let mut server = sotw();
    replace(&mut |type_url, texts| server.set(type_url, texts));
    server.pushes_well(CLUSTER, "c2@1 c1@1", "");
    let listeners = server.pushes(LISTENER, "l@2");
    // Envoy asks for the route of the new listener before it accepts the listener.
    server.request(ask(ROUTE, "r1 r2"));
    let routes = server.pushes(ROUTE, "r2@1");
    server.ack(&listeners, "");
    server.rests();
    server.ack(&routes, "r2");
    server.pushes_well(CLUSTER, "c2@1", "");
    server.rests();
}

#[test]
fn rule_8_with_changes_removals_are_a_second_push() {
    let mut server = Delta::new();
    first(&mut |type_url, texts| server.set(type_url, texts));
    for (type_url, names, texts) in
        [(ROUTE, "r1", "r1@1"), (LISTENER, "", "l@1"), (ENDPOINT, "c1 c2", "c1@1 -c2"), (CLUSTER, "", "c1@1")]
    {
        server.subscribe(type_url, names, "");
        server.pushes_well(type_url, texts);
    }
    replace(&mut |type_url, texts| server.set(type_url, texts));
    server.pushes_well(CLUSTER, "c2@1");
    server.pushes_well(ENDPOINT, "c2@1");
    let listeners = server.pushes(LISTENER, "l@2");
    server.subscribe(ROUTE, "r2", "");
    let routes = server.pushes(ROUTE, "r2@1 -r1");
    server.request(accepted(&listeners));
    server.rests();
    server.request(accepted(&routes));
    server.pushes_well(CLUSTER, "-c1");
    server.pushes_well(ENDPOINT, "-c1");
    server.rests();
}

#[test]
fn rule_8_a_cluster_that_comes_back_is_not_removed() {
    let mut server = Delta::new();
    first(&mut |type_url, texts| server.set(type_url, texts));
    for type_url in [LISTENER, CLUSTER] {
        server.subscribe(type_url, "", "");
        let push = server.next().unwrap();
        server.request(accepted(&push));
    }
    replace(&mut |type_url, texts| server.set(type_url, texts));
    server.pushes_well(CLUSTER, "c2@1");
    let listeners = server.pushes(LISTENER, "l@2");
    server.set(CLUSTER, "c1@1");
    server.pushes_well(CLUSTER, "c1@1");
    server.request(accepted(&listeners));
    server.pushes_well(CLUSTER, "-c2");
    server.rests();
}

#[test]
fn rule_8_a_listener_that_is_refused_keeps_its_clusters() {
    let mut server = sotw();
    replace(&mut |type_url, texts| server.set(type_url, texts));
    server.pushes_well(CLUSTER, "c2@1 c1@1", "");
    let listeners = server.pushes(LISTENER, "l@2");
    server.request(nack(&listeners, "", ""));
    server.rests();
    server.set(LISTENER, "l@3");
    server.pushes_well(LISTENER, "l@3", "");
    server.pushes_well(CLUSTER, "c2@1", "");
}

#[test]
fn rule_8_news_wait_for_the_clusters_they_may_refer_to() {
    let mut server = sotw();
    server.set(CLUSTER, "c1@2");
    let clusters = server.pushes(CLUSTER, "c1@2");
    server.set(CLUSTER, "c1@2 c2@1");
    server.set(LISTENER, "l@2");
    server.set(ENTRY, "ns/e@1");
    server.rests();
    server.ask(ENTRY, "");
    server.pushes_well(ENTRY, "ns/e@1", "");
    server.ack(&clusters, "");
    server.pushes_well(CLUSTER, "c1@2 c2@1", "");
    server.pushes_well(LISTENER, "l@2", "");
}

#[test]
fn rule_8_what_is_asked_for_does_not_wait() {
    let mut server = sotw();
    server.set(CLUSTER, "c1@2");
    let clusters = server.pushes(CLUSTER, "c1@2");
    server.set(CLUSTER, "c1@3");
    server.set(ROUTE, "r1@1 r2@1");
    server.request(ask(ROUTE, "r1 r2"));
    server.pushes_well(ROUTE, "r1@1 r2@1", "r1 r2");
    server.ack(&clusters, "");
    server.pushes_well(CLUSTER, "c1@3", "");
}

#[test]
fn rule_8_without_listeners_nothing_is_waited_for() {
    let mut server = Sotw::new();
    server.set(CLUSTER, "a@1 b@1");
    server.ask(CLUSTER, "");
    server.pushes_well(CLUSTER, "a@1 b@1", "");
    server.set(CLUSTER, "c@1");
    server.pushes_well(CLUSTER, "c@1", "");
    server.rests();
}

#[test]
fn rule_8_a_cluster_that_was_refused_is_not_retained() {
    let mut server = sotw();
    server.set(LISTENER, "l@2");
    let listeners = server.pushes(LISTENER, "l@2");
    server.set(CLUSTER, "bad@1 c1@2");
    let bad = server.pushes(CLUSTER, "bad@1 c1@2");
    server.request(nack(&bad, "", ""));
    server.set(CLUSTER, "c1@2");
    server.pushes_well(CLUSTER, "c1@2", "");
    server.ack(&listeners, "");
    server.rests();
}

/// A client that has all of the first; then a cluster, its endpoints and a route to it arrive together.
fn sotw_with_another_cluster() -> Sotw {
    let mut server = sotw();
    server.set(ROUTE, "r1@2");
    server.set(ENDPOINT, "c1@1 c2@1");
    server.set(CLUSTER, "c1@1 c2@1");
    server
}

#[test]
fn rule_8_routes_wait_for_the_endpoints_that_are_asked_for_before_the_clusters_are_answered() {
    let mut server = sotw_with_another_cluster();
    let clusters = server.pushes(CLUSTER, "c1@1 c2@1");
    server.rests();
    server.request(ask(ENDPOINT, "c1 c2"));
    let endpoints = server.pushes(ENDPOINT, "c1@1 c2@1");
    server.ack(&clusters, "");
    server.rests();
    server.ack(&endpoints, "c1 c2");
    server.pushes_well(ROUTE, "r1@2", "r1");
    server.rests();
}

#[test]
fn rule_8_routes_wait_for_endpoints_whose_request_crosses_a_push() {
    let mut server = sotw_with_another_cluster();
    server.set(ENDPOINT, "c1@2 c2@1");
    let clusters = server.pushes(CLUSTER, "c1@1 c2@1");
    let crossed = server.pushes(ENDPOINT, "c1@2");
    // The request for the endpoints of the new cluster was stale.
    server.ack(&clusters, "");
    server.rests();
    server.ack(&crossed, "c1 c2");
    let endpoints = server.pushes(ENDPOINT, "c2@1");
    server.rests();
    server.ack(&endpoints, "c1 c2");
    server.pushes_well(ROUTE, "r1@2", "r1");
}

#[test]
fn rule_8_with_changes_routes_wait_for_new_clusters_and_their_endpoints() {
    let mut server = Delta::new();
    first(&mut |type_url, texts| server.set(type_url, texts));
    for (type_url, names, texts) in
        [(ROUTE, "r1", "r1@1"), (LISTENER, "", "l@1"), (ENDPOINT, "c1", "c1@1"), (CLUSTER, "", "c1@1")]
    {
        server.subscribe(type_url, names, "");
        server.pushes_well(type_url, texts);
    }
    server.set(ROUTE, "r1@2");
    server.set(ENDPOINT, "c1@1 c2@1");
    server.set(CLUSTER, "c1@1 c2@1");
    let clusters = server.pushes(CLUSTER, "c2@1");
    server.rests();
    server.subscribe(ENDPOINT, "c2", "");
    server.request(accepted(&clusters));
    let endpoints = server.pushes(ENDPOINT, "c2@1");
    server.rests();
    server.request(accepted(&endpoints));
    server.pushes_well(ROUTE, "r1@2");
    server.rests();
}

#[test]
fn rule_8_endpoints_that_do_not_exist_are_not_waited_for() {
    let mut server = sotw_with_another_cluster();
    server.set(ENDPOINT, "c1@1");
    let clusters = server.pushes(CLUSTER, "c1@1 c2@1");
    server.request(ask(ENDPOINT, "c1 c2"));
    server.pushes_well(ENDPOINT, "c1@1", "c1 c2");
    server.ack(&clusters, "");
    server.pushes_well(ROUTE, "r1@2", "r1");
}

#[test]
fn rule_8_routes_do_not_wait_for_changes_of_what_the_client_has() {
    let mut server = sotw();
    server.set(ROUTE, "r1@2");
    server.set(ENDPOINT, "c1@2");
    server.set(CLUSTER, "c1@2");
    server.pushes(CLUSTER, "c1@2");
    server.pushes(ENDPOINT, "c1@2");
    server.pushes(ROUTE, "r1@2");
}

#[test]
fn rule_8_a_refused_cluster_is_answered() {
    let mut server = sotw_with_another_cluster();
    let clusters = server.pushes(CLUSTER, "c1@1 c2@1");
    server.request(nack(&clusters, "", ""));
    server.pushes_well(ROUTE, "r1@2", "r1");
}

#[test]
fn rule_8_the_wait_for_answers_ends_after_seconds() {
    let mut server = sotw_with_another_cluster();
    let start = Instant::now();
    let clusters = server.pushes(CLUSTER, "c1@1 c2@1");
    let end = server.elapsed(start).unwrap();
    assert!((1..=10).contains(&(end - start).as_secs()), "{:?}", end - start);
    // Another push does not prolong it.
    server.request(ask(ENDPOINT, "c1 c2"));
    server.pushes(ENDPOINT, "c1@1 c2@1");
    assert_eq!(server.elapsed(start + Duration::from_millis(1)), Some(end));
    server.rests();
    assert_eq!(server.elapsed(end), None);
    server.pushes_well(ROUTE, "r1@2", "r1");
    // What comes later does not wait for the same answers.
    server.set(ROUTE, "r1@3");
    server.pushes_well(ROUTE, "r1@3", "r1");
    server.ack(&clusters, "");
}
