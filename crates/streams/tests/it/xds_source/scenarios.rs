//! The scenarios of the conformance suite `ii/xds-test-harness` (docs/behaviour/xds.md#the-scenarios-of-xds-test-harness), as
//! tables: resources, subscriptions, changes, and the pushes that the client gets for them; after each step the server sends
//! nothing else.

use super::{messages::*, world::*};

/// What happens, and what is pushed then; nothing where nothing is.
enum Step {
    Wants(&'static str, Option<&'static str>),
    Leaves(&'static str, Option<&'static str>),
    Becomes(&'static str, Option<&'static str>),
}
use Step::{Becomes, Leaves, Wants};

/// Each step adds or takes away names, or changes all there is, and all pushes are accepted.
fn sotw(type_url: &str, start: &str, steps: &[Step]) {
    let mut server = Sotw::new();
    server.set(type_url, start);
    let mut names: Vec<String> = Vec::new();
    let mut last = None;
    for step in steps {
        let expected = match step {
            Wants(more, expected) | Leaves(more, expected) => {
                let listed = list(more);
                match step {
                    Wants(..) => names.extend(listed),
                    _ => names.retain(|name| !listed.contains(name)),
                }
                let mut request = ask(type_url, &names.join(" "));
                request.response_nonce = last.clone().unwrap_or_default();
                server.request(request);
                expected
            }
            Becomes(texts, expected) => {
                server.set(type_url, texts);
                expected
            }
        };
        if let Some(expected) = expected {
            last = Some(server.pushes_well(type_url, expected, &names.join(" ")).nonce);
        }
        server.rests();
    }
}

fn changes_only(type_url: &str, start: &str, steps: &[Step]) {
    let mut server = Delta::new();
    server.set(type_url, start);
    for step in steps {
        let expected = match step {
            Wants(more, expected) => {
                server.subscribe(type_url, more, "");
                expected
            }
            Leaves(less, expected) => {
                server.subscribe(type_url, "", less);
                expected
            }
            Becomes(texts, expected) => {
                server.set(type_url, texts);
                expected
            }
        };
        if let Some(expected) = expected {
            server.pushes_well(type_url, expected);
        }
        server.rests();
    }
}

#[test]
fn everything_is_sent_at_once_and_again_when_something_changes_or_is_added() {
    for type_url in [CLUSTER, LISTENER] {
        let steps = [
            Wants("", Some("A@1 B@1 C@1")),
            Becomes("A@2 B@1 C@1", Some("A@2 B@1 C@1")),
            Becomes("A@2 B@1 C@1 D@2", Some("A@2 B@1 C@1 D@2")),
            Becomes("A@2 D@2", Some("A@2 D@2")),
        ];
        sotw(type_url, "A@1 B@1 C@1", &steps);
    }
}

#[test]
fn what_is_named_is_sent_alone_and_when_it_changes() {
    for type_url in [CLUSTER, LISTENER] {
        let steps = [
            Wants("B D", Some("B@1 D@1")),
            Becomes("A@1 B@2 C@1 D@1", Some("B@2 D@1")),
            Becomes("A@2 B@2 C@1 D@1", None),
        ];
        sotw(type_url, "A@1 B@1 C@1 D@1", &steps);
    }
    for type_url in [ROUTE, ENDPOINT] {
        let steps = [Wants("B D", Some("B@1 D@1")), Becomes("A@1 B@2 C@1 D@1", Some("B@2"))];
        sotw(type_url, "A@1 B@1 C@1 D@1", &steps);
        changes_only(type_url, "A@1 B@1 C@1 D@1", &steps);
    }
}

#[test]
fn what_does_not_exist_is_sent_when_it_does() {
    for type_url in [CLUSTER, LISTENER] {
        let steps = [Wants("A Z", Some("A@1")), Becomes("A@1 B@1 Z@2", Some("A@1 Z@2"))];
        sotw(type_url, "A@1 B@1", &steps);
    }
    for type_url in [ROUTE, ENDPOINT] {
        let steps = [Wants("A Z", Some("A@1")), Becomes("A@1 B@1 Z@2", Some("Z@2"))];
        sotw(type_url, "A@1 B@1", &steps);
    }
    for type_url in [CLUSTER, LISTENER, ROUTE, ENDPOINT] {
        changes_only(type_url, "A@1", &[Wants("A B", Some("A@1 -B")), Becomes("A@1 B@1", Some("B@1"))]);
    }
}

#[test]
fn what_is_not_wanted_any_more_is_not_sent() {
    for type_url in [CLUSTER, LISTENER] {
        let steps = [
            Wants("A B C", Some("A@1 B@1 C@1")),
            Leaves("B", None),
            Becomes("A@2 B@2 C@2 D@2", Some("A@2 C@2")),
            Leaves("A C", None),
            Becomes("A@3 B@3 C@3 D@3", None),
            Wants("A", Some("A@3")),
        ];
        sotw(type_url, "A@1 B@1 C@1 D@1", &steps);
    }
    for type_url in [ROUTE, ENDPOINT] {
        let steps = [
            Wants("B D", Some("B@1 D@1")),
            Leaves("D", None),
            Becomes("B@2 D@2", Some("B@2")),
            Leaves("B", None),
            Becomes("B@3 D@3", None),
            Wants("D", Some("D@3")),
        ];
        sotw(type_url, "B@1 D@1", &steps);
        changes_only(type_url, "B@1 D@1", &steps);
    }
}

#[test]
fn changes_say_what_was_added_and_removed() {
    for type_url in [CLUSTER, LISTENER, ROUTE, ENDPOINT] {
        let steps = [
            Wants("A", Some("A@1")),
            Wants("B", Some("B@1")),
            Becomes("A@1 C@1", Some("-B")),
            Becomes("A@1 B@2 C@1", Some("B@2")),
        ];
        changes_only(type_url, "A@1 B@1 C@1", &steps);
    }
}

#[test]
fn types_on_one_stream_do_not_answer_for_each_other() {
    for (one, other) in [(CLUSTER, LISTENER), (ROUTE, ENDPOINT)] {
        let mut server = Sotw::new();
        server.set(one, "A@1 B@1 C@1");
        server.set(other, "A@1 B@1 C@1");
        server.ask(one, "B");
        server.pushes_well(one, "B@1", "B");
        server.ask(other, "B");
        server.pushes_well(other, "B@1", "B");
        server.set(one, "A@1 B@2 C@1");
        server.pushes_well(one, "B@2", "B");
        server.rests();
    }
}
