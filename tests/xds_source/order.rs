//! Make before break: docs/behaviour/xds.md#rule-8-order.

use crate::{messages::*, world::*};

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
    let listeners = server.pushes(LISTENER, "l@2");
    let routes = server.pushes(ROUTE, "r1@2");
    server.rests();
    server.ack(&both, "");
    server.ack(&endpoints, "c1");
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
