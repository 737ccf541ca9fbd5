//! Names with the slash in front that old documents show, wherever a name comes in.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use mixer_adapter_streams::{
    mcp::source::McpStream,
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
        istio::mcp::v1alpha1::RequestResources,
    },
    stream::{
        RawChange, RawResource,
        sink::{Mode, Output, SinkDecision, SinkMachine, SinkOptions},
        source::Catalogue,
    },
    xds::source::{DeltaStream, SotwStream},
};
use proptest::prelude::*;

use super::messages::*;

const TYPE_URL: &str = "config.istio.io/v1alpha2/rule";

fn change(full: bool, resources: &[(&str, &str)], removed: &[&str]) -> RawChange {
    let resource = |(name, version): &(&str, &str)| {
        Arc::new(RawResource {
            name: (*name).to_owned(),
            version: (*version).to_owned(),
            ..RawResource::default()
        })
    };
    RawChange {
        collection: RULES.into(),
        version: String::new(),
        full,
        resources: resources.iter().map(resource).collect(),
        removed: removed.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn catalogue(resources: &[(&str, &str)]) -> Catalogue {
    let mut catalogue = Catalogue::default().open();
    catalogue.apply(&change(true, resources, &[]));
    catalogue
}

fn versions(name: &str, version: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), version.to_owned())])
}

/// What a sink of MCP lacks that says it has that, with what it is to remove.
fn mcp_lacks(catalogue: &Catalogue, name: &str, version: &str) -> (Vec<String>, Vec<String>) {
    let mut source = McpStream::new(true);
    let request = RequestResources {
        collection: RULES.to_owned(),
        incremental: true,
        initial_resource_versions: versions(name, version),
        ..RequestResources::default()
    };
    source.requested(request, catalogue).unwrap();
    let push = source.next(catalogue).unwrap();
    (names(&push), push.removed_resources)
}

/// The same of a client of delta xDS.
fn delta_lacks(catalogue: &Catalogue, name: &str, version: &str) -> (Vec<String>, Vec<String>) {
    let mut server = DeltaStream::new(None);
    let request = DeltaDiscoveryRequest {
        type_url: TYPE_URL.to_owned(),
        initial_resource_versions: versions(name, version),
        ..DeltaDiscoveryRequest::default()
    };
    server.requested(request).unwrap();
    let push = server.next(catalogue).unwrap_or_default();
    (push.resources.into_iter().map(|resource| resource.name).collect(), push.removed_resources)
}

/// The resources of a state-of-the-world and of a delta response to a subscription by name.
fn subscribed(catalogue: &Catalogue, name: &str) -> (usize, Vec<String>) {
    let names = vec![name.to_owned()];
    let mut server = SotwStream::new(None);
    let request = DiscoveryRequest {
        type_url: TYPE_URL.to_owned(),
        resource_names: names.clone(),
        ..DiscoveryRequest::default()
    };
    server.requested(request).unwrap();
    let whole = server.next(catalogue).unwrap().resources.len();
    let mut server = DeltaStream::new(None);
    let request = DeltaDiscoveryRequest {
        type_url: TYPE_URL.to_owned(),
        resource_names_subscribe: names.clone(),
        ..DeltaDiscoveryRequest::default()
    };
    server.requested(request).unwrap();
    let pushed = server.next(catalogue).unwrap();
    // A client that unsubscribes gets no further changes.
    let request = DeltaDiscoveryRequest {
        type_url: TYPE_URL.to_owned(),
        resource_names_unsubscribe: names,
        response_nonce: pushed.nonce,
        ..DeltaDiscoveryRequest::default()
    };
    server.requested(request).unwrap();
    let mut later = catalogue.clone();
    later.apply(&change(false, &[("ns/a", "later"), ("a", "later")], &[]));
    assert!(server.next(&later).is_none(), "{name}");
    (whole, pushed.resources.into_iter().map(|resource| resource.name).collect())
}

/// What a sink has after a push of a resource of one name and an incremental one that removes the other.
fn held(pushed: &str, removed: &str) -> Vec<String> {
    let now = Instant::now();
    let options = SinkOptions::new("sink", [RULES]).mode(Mode::FullFirst);
    let mut sink = SinkMachine::new(options);
    sink.opened(1, now);
    let decide = |sink: &mut SinkMachine| {
        while let Some(output) = sink.poll(now) {
            if let Output::Decide(id, change) = output {
                sink.decided(&change.collection, id, SinkDecision::Live, now);
            }
        }
    };
    sink.received(1, push(RULES, "1", &[&format!("{pushed}@1"), "other@1"]), now);
    decide(&mut sink);
    let mut second = push(RULES, "2", &[]);
    second.incremental = true;
    second.removed_resources = vec![removed.to_owned()];
    sink.received(1, second, now);
    decide(&mut sink);
    sink.collection(RULES).unwrap().resources().map(|resource| resource.name.clone()).collect()
}

#[test]
fn a_resource_that_a_source_adds_under_another_spelling_of_the_name_it_removes_stays() {
    let now = Instant::now();
    let mut sink = SinkMachine::new(SinkOptions::new("sink", [RULES]).mode(Mode::FullFirst));
    sink.opened(1, now);
    let mut second = push(RULES, "2", &["/shop/r1@2"]);
    second.incremental = true;
    second.removed_resources = vec!["shop/r1".to_owned()];
    for push in [push(RULES, "1", &["shop/r1@1"]), second] {
        sink.received(1, push, now);
        while let Some(output) = sink.poll(now) {
            if let Output::Decide(id, change) = output {
                sink.decided(&change.collection, id, SinkDecision::Live, now);
            }
        }
    }
    let held = sink.collection(RULES).unwrap().resources();
    assert_eq!(held.map(|rule| (&*rule.name, &*rule.version)).collect::<Vec<_>>(), [("shop/r1", "2")]);
}

proptest! {
    #[test]
    fn a_slash_in_front_of_a_name_never_makes_it_another_name(
        name in "([a-z]{1,3}/){0,4}[a-z]{1,3}",
        slashes in prop::array::uniform4(any::<bool>()),
    ) {
        let written = |place: usize| format!("{}{name}", if slashes[place] { "/" } else { "" });
        let (first, second, third, fourth) = (&*written(0), &*written(1), &*written(2), &*written(3));
        // An author gives a source its resources, and takes some back.
        let mut source = catalogue(&[(first, "1"), ("zz/other", "1")]);
        let served: Vec<String> = source.snapshot(RULES).unwrap().resources().map(|r| r.name.clone()).collect();
        prop_assert!(served.contains(&name) && served.len() == 2, "{served:?}");
        source.apply(&change(false, &[(second, "2")], &[]));
        prop_assert_eq!(source.snapshot(RULES).unwrap().resources().len(), 2);

        // initial_resource_versions of both protocols.
        let mut alone = catalogue(&[(first, "2")]);
        prop_assert_eq!(mcp_lacks(&alone, third, "2"), (vec![], vec![]));
        prop_assert_eq!(mcp_lacks(&alone, third, "1"), (vec![format!("{name}@2")], vec![]));
        let own = delta_version(&alone, &name);
        prop_assert_eq!(delta_lacks(&alone, third, &own), (vec![], vec![]));
        prop_assert_eq!(delta_lacks(&alone, third, "old"), (vec![name.clone()], vec![]));

        // Names that clients of xDS subscribe to.
        prop_assert_eq!(subscribed(&alone, fourth), (1, vec![name.clone()]));

        alone.apply(&change(false, &[], &[fourth]));
        prop_assert_eq!(alone.snapshot(RULES).unwrap().resources().len(), 0);

        // Pushes to a sink.
        prop_assert_eq!(held(second, third), ["other"]);
    }
}

fn delta_version(catalogue: &Catalogue, name: &str) -> String {
    let mut server = DeltaStream::new(None);
    let request = DeltaDiscoveryRequest { type_url: TYPE_URL.to_owned(), ..DeltaDiscoveryRequest::default() };
    server.requested(request).unwrap();
    let push = server.next(catalogue).unwrap();
    push.resources.into_iter().find(|resource| resource.name == name).unwrap().version
}

#[test]
fn versions_with_a_slash_in_front_never_make_a_source_remove_what_it_has() {
    let source = catalogue(&[("shop/r1", "1")]);
    assert_eq!(mcp_lacks(&source, "/shop/r1", "1"), (vec![], vec![]));
}
