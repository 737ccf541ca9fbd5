//! Names that are URLs, `xdstp://AUTHORITY/TYPE/ID?CONTEXT`, and the collections of such names (docs/behaviour/xds.md#xdstp-names).

use std::time::Duration;

use mixer_adapter_config::parse;
use mixer_adapter_streams::{
    SourceSettings, StreamSource, Wanted,
    proto::envoy::service::discovery::v3::DeltaDiscoveryRequest,
    stream::{Peer, check, sink::Variant, source::Meaning},
    xds::{sink::node, source::fetch},
};
use tokio::time::timeout;

use super::{
    messages::*,
    sockets::Server,
    world::{Delta, Sotw},
};

const EU: &str = "xdstp://shop/envoy.config.cluster.v3.Cluster/eu";
const SOON: Duration = Duration::from_secs(20);

/// `eu/NAME@CONTENT` in full, for several of them.
fn eu(texts: &str) -> String {
    let texts = texts.split_whitespace().map(|text| match text.strip_prefix('-') {
        Some(gone) => format!("-{EU}/{gone}"),
        None => format!("{EU}/{text}"),
    });
    texts.collect::<Vec<_>>().join(" ")
}

#[test]
fn an_xdstp_name_is_served_in_any_order_of_its_context_parameters() {
    let mut server = Delta::new();
    server.set(CLUSTER, &eu("a?y=2&x=1@1"));
    server.subscribe(CLUSTER, &eu("a?x=1&y=2"), "");
    let push = server.pushes_well(CLUSTER, &eu("a?y=2&x=1@1"));
    assert_eq!(push.resources[0].name, eu("a?x=1&y=2"), "the canonical name");
    server.subscribe(CLUSTER, &eu("a"), "");
    server.pushes_well(CLUSTER, &eu("-a"));

    let mut server = Sotw::new();
    server.set(CLUSTER, &eu("a?y=2&x=1@1 a@2"));
    server.ask(CLUSTER, &eu("a?y=2&x=1"));
    server.pushes(CLUSTER, &eu("a?y=2&x=1@1"));
}

#[test]
fn a_glob_collection_has_the_resources_one_segment_below_it_with_its_context() {
    let texts = eu("a@1 b@1 north/c@1 d?env=test@1");
    let other = "xdstp://other/envoy.config.cluster.v3.Cluster/eu/a@1 eu@1";
    let mut server = Delta::new();
    server.set(CLUSTER, &format!("{texts} {other}"));
    for (collection, expected) in [
        ("*", "a@1 b@1"),
        ("north/*", "north/c@1"),
        ("*?env=test", "d?env=test@1"),
        ("*?env=live", "-*?env=live"),
    ] {
        server.reconnect();
        server.subscribe(CLUSTER, &eu(collection), "");
        server.pushes_well(CLUSTER, &eu(expected));
        server.rests();
    }
}

#[test]
fn changes_of_a_glob_collection_are_followed() {
    let mut server = Delta::new();
    server.set(CLUSTER, &eu("a@1"));
    server.subscribe(CLUSTER, &eu("*"), "");
    server.pushes_well(CLUSTER, &eu("a@1"));
    server.set(CLUSTER, &eu("a@1 b@1 x/c@1"));
    server.pushes_well(CLUSTER, &eu("b@1"));
    server.set(CLUSTER, &eu("b@2 x/c@2"));
    server.pushes_well(CLUSTER, &eu("b@2 -a"));
    server.subscribe(CLUSTER, "", &eu("b"));
    server.pushes_well(CLUSTER, &eu("b@2"));
    server.subscribe(CLUSTER, "", &eu("*"));
    server.set(CLUSTER, &eu("b@3"));
    server.rests();

    // Whole sets: what is missing is deleted.
    let mut server = Sotw::new();
    server.set(CLUSTER, &eu("a@1 b@1 x/c@1"));
    server.ask(CLUSTER, &eu("*"));
    server.pushes_well(CLUSTER, &eu("a@1 b@1"), &eu("*"));
    server.set(CLUSTER, &eu("b@2 x/c@1"));
    server.pushes_well(CLUSTER, &eu("b@2"), &eu("*"));
    server.rests();
}

#[test]
fn a_refused_resource_of_a_glob_collection_is_not_sent_again() {
    let mut server = Delta::new();
    server.set(CLUSTER, &eu("a@1"));
    server.subscribe(CLUSTER, &eu("*"), "");
    server.pushes_well(CLUSTER, &eu("a@1"));
    server.set(CLUSTER, &eu("a@bad"));
    let bad = server.pushes(CLUSTER, &eu("a@bad"));
    assert_eq!(server.request(refused(&bad)), Meaning::Refused(error("no")));
    server.rests();
    server.set(CLUSTER, &eu("a@2"));
    server.pushes_well(CLUSTER, &eu("a@2"));
}

#[test]
fn a_client_that_comes_back_gets_what_differs_of_its_glob_collection() {
    let mut server = Delta::new();
    server.set(CLUSTER, &eu("a@1 b@1"));
    server.subscribe(CLUSTER, &eu("*"), "");
    let push = server.pushes_well(CLUSTER, &eu("a@1 b@1"));
    let versions = push.resources.iter().map(|resource| (resource.name.clone(), resource.version.clone()));
    let versions: std::collections::HashMap<_, _> = versions.collect();
    server.reconnect();
    server.set(CLUSTER, &eu("a@1 c@1"));
    let request = DeltaDiscoveryRequest {
        initial_resource_versions: versions.into_iter().collect(),
        ..subscribe(CLUSTER, &eu("*"), "")
    };
    assert_eq!(server.request(request), Meaning::Requested);
    server.pushes_well(CLUSTER, &eu("c@1 -b"));
}

#[test]
fn a_glob_collection_is_answered_without_a_stream() {
    let mut server = Sotw::new();
    server.set(CLUSTER, &eu("a@1 x/c@1"));
    let answer = fetch(&server.catalogue, &ask(CLUSTER, &eu("*"))).unwrap().unwrap();
    assert_eq!(texts(&answer), eu("a@1"));
}

#[test]
fn an_xdstp_name_of_another_type_is_a_fault() {
    for (name, reason) in [
        (
            "xdstp://shop/envoy.config.route.v3.RouteConfiguration/eu/a",
            "is of the type envoy.config.route.v3.RouteConfiguration",
        ),
        ("xdstp://shop/envoy.config.cluster.v3.Cluster/eu/*", "is a collection, not a resource"),
        ("xdstp://shop/envoy.config.cluster.v3.Cluster", "is not an xdstp name"),
        ("xdstp://shop/envoy.config.cluster.v3.Cluster/eu/a#alt=b", "has directives after #"),
    ] {
        let parsed = parse(&format!("'@type': {CLUSTER}\nname: '{name}'\n"), "x.yaml", "ns");
        let faults = check(&mixer_adapter_streams::Types::default(), &parsed.resources);
        assert!(faults.len() == 1 && faults[0].to_string().contains(reason), "{name}: {faults:?}");
    }
}

/// Over sockets, in every form.
#[tokio::test]
async fn a_glob_collection_is_followed_by_a_sink() {
    let server = Server::start().await;
    let cluster = |name: &str| format!("'@type': {CLUSTER}\nname: {}\n", eu(name));
    server.source.serve_text(&format!("{}---\n{}", cluster("a"), cluster("x/c"))).unwrap();
    let collection = "envoy.config.cluster.v3.Cluster".to_owned();
    let settings = SourceSettings::new("ns")
        .collections(vec![Wanted { collection, required: true }])
        .resource_names([(CLUSTER.to_owned(), vec![eu("*")])].into());
    let node = node("follower", "ns", Vec::new());
    let peer = || Peer::new(server.address.to_string());
    let polling = mixer_adapter_streams::xds::sink::PollOptions::default();
    for source in [
        StreamSource::xds(peer(), Variant::Sotw, node.clone(), &settings),
        StreamSource::xds(peer(), Variant::Delta, node.clone(), &settings),
        StreamSource::rest(peer(), node.clone(), polling, &settings),
    ] {
        let mut follower = source.connect();
        let offer = timeout(SOON, follower.changes.recv()).await.unwrap().unwrap();
        let names: Vec<_> = offer.content().resources.iter().map(|resource| resource.name.clone()).collect();
        assert_eq!(names, [eu("a")]);
        offer.accept();
    }
}
