//! What the envelope of a resource says: its time to live, and other names that it is found by.

use std::time::{Duration, Instant};

use mixer_adapter_streams::{
    SourceSettings, StreamSource, Wanted,
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse, Resource},
    },
    stream::{
        Peer,
        sink::Variant,
        source::{Catalogue, ConfigServer, ConfigServerOptions},
    },
    xds::{
        sink::node,
        source::{DeltaStream, SotwStream},
    },
};
use prost::Message as _;
use tokio::time::timeout;

use super::{messages::*, sockets::Server};

const SOON: Duration = Duration::from_secs(20);
const VIRTUAL_HOST: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";

fn server(text: &str) -> ConfigServer {
    let server = ConfigServer::new(Catalogue::default().open(), ConfigServerOptions::default());
    server.serve_text(text).unwrap();
    server
}

/// A cluster with this line in its envelope, and one without an envelope.
fn clusters(line: &str) -> String {
    format!(
        "'@type': type.googleapis.com/envoy.service.discovery.v3.Resource\nname: a\n{line}\n\
         resource: {{'@type': {CLUSTER}, name: a}}\n---\n'@type': {CLUSTER}\nname: b\n"
    )
}

/// A client that supports times to live asks for clusters.
fn supporting() -> DeltaDiscoveryRequest {
    let client_features = vec!["xds.config.supports-resource-ttl".to_owned()];
    let node = Node { id: "edge".to_owned(), client_features, ..Node::default() };
    DeltaDiscoveryRequest { node: Some(node), ..subscribe(CLUSTER, "", "") }
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

#[test]
fn a_resource_with_a_ttl_is_renewed_by_heartbeats_without_a_body() {
    let server = server(&clusters("ttl: 30s"));
    let mut stream = DeltaStream::new(None);
    stream.requested(supporting()).unwrap();
    let first = stream.next(&server.catalogue()).unwrap();
    let lives: Vec<_> = first.resources.iter().map(|resource| (&*resource.name, resource.ttl)).collect();
    assert_eq!(lives, [("a", seconds(30)), ("b", None)]);
    let start = Instant::now();
    stream.elapsed(start);
    assert_eq!(stream.wakeup(), Some(start + Duration::from_secs(10)), "three times in its life");
    stream.elapsed(start + Duration::from_secs(10));
    assert_eq!(stream.next(&server.catalogue()), None, "while the first response is not answered");
    stream.requested(accepted(&first)).unwrap();
    let heartbeat = stream.next(&server.catalogue()).unwrap();
    let [renewed] = &heartbeat.resources[..] else { panic!("{heartbeat:?}") };
    assert_eq!((&renewed.name, &renewed.version), (&first.resources[0].name, &first.resources[0].version));
    assert_eq!((renewed.ttl, &renewed.resource), (seconds(30), &None));
    stream.requested(accepted(&heartbeat)).unwrap();
    assert_eq!(stream.next(&server.catalogue()), None);
    assert_eq!(stream.wakeup(), Some(start + Duration::from_secs(20)));
    // Without one there is nothing to renew.
    server.serve_text(&clusters("")).unwrap();
    let change = stream.next(&server.catalogue()).unwrap();
    assert_eq!((&*change.resources[0].name, change.resources[0].ttl), ("a", None));
    stream.requested(accepted(&change)).unwrap();
    stream.elapsed(start + Duration::from_secs(40));
    assert_eq!((stream.wakeup(), stream.next(&server.catalogue())), (None, None));
}

#[test]
fn a_client_that_does_not_support_ttls_gets_resources_without() {
    let server = server(&clusters("ttl: 30s"));
    let mut stream = DeltaStream::new(None);
    stream.requested(subscribe(CLUSTER, "", "")).unwrap();
    let first = stream.next(&server.catalogue()).unwrap();
    assert!(first.resources.iter().all(|resource| resource.ttl.is_none()));
    stream.elapsed(Instant::now());
    assert_eq!(stream.wakeup(), None);
    let mut stream = SotwStream::new(None);
    let DeltaDiscoveryRequest { node, .. } = supporting();
    stream.requested(DiscoveryRequest { node, ..ask(CLUSTER, "") }).unwrap();
    let first = stream.next(&server.catalogue()).unwrap();
    assert_eq!(
        first.resources[0].type_url, CLUSTER,
        "bare: it does not read the wrapper that whole sets need"
    );
    stream.elapsed(Instant::now());
    assert_eq!(stream.wakeup(), None);
}

/// A client that reads the wrapper of resources in whole sets asks for a type.
fn reading(feature: &str, type_url: &str, names: &str) -> DiscoveryRequest {
    let client_features = ["xds.config.supports-resource-ttl", feature].map(str::to_owned).to_vec();
    let node = Node { id: "edge".to_owned(), client_features, ..Node::default() };
    DiscoveryRequest { node: Some(node), ..ask(type_url, names) }
}

/// The resources of a whole set with a time to live: name, version, time to live, and whether there is a body.
fn lives(push: &DiscoveryResponse) -> Vec<(String, String, Option<prost_types::Duration>, bool)> {
    let wrapped = push.resources.iter().filter(|any| any.type_url.ends_with("discovery.v3.Resource"));
    let wrapped = wrapped.map(|any| Resource::decode(&*any.value).unwrap());
    wrapped.map(|one| (one.name, one.version, one.ttl, one.resource.is_some())).collect()
}

/// A missing listener or cluster is deleted, so that all of them are sent again.
#[test]
fn whole_sets_are_renewed_by_themselves() {
    for feature in ["xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw"] {
        let server = server(&clusters("ttl: 30s"));
        let mut stream = SotwStream::new(None);
        stream.requested(reading(feature, CLUSTER, "")).unwrap();
        let first = stream.next(&server.catalogue()).unwrap();
        assert_eq!(first.resources.len(), 2);
        let expected = [("a".to_owned(), first.version_info.clone(), seconds(30), true)];
        assert_eq!(lives(&first), expected);
        let start = Instant::now();
        stream.elapsed(start);
        stream.elapsed(start + Duration::from_secs(10));
        assert_eq!(stream.next(&server.catalogue()), None, "while the first response is not answered");
        stream.requested(ack(&first, "")).unwrap();
        let renewed = stream.next(&server.catalogue()).unwrap();
        assert_eq!((&renewed.version_info, &renewed.resources), (&first.version_info, &first.resources));
        assert_ne!(renewed.nonce, first.nonce);
        stream.requested(ack(&renewed, "")).unwrap();
        assert_eq!(stream.next(&server.catalogue()), None);
        assert_eq!(stream.wakeup(), Some(start + Duration::from_secs(20)));
    }
}

/// Responses with routes or endpoints hold what is new; heartbeats have no bodies, and the version that the client accepted.
#[test]
fn heartbeats_over_the_state_of_the_world_have_no_bodies_and_the_accepted_version() {
    let routes = |line: &str, hosts: &str| {
        format!(
            "'@type': type.googleapis.com/envoy.service.discovery.v3.Resource\nname: a\n{line}\n\
             resource: {{'@type': {ROUTE}, name: a, virtual_hosts: [{hosts}]}}\n---\n'@type': {ROUTE}\nname: b\n"
        )
    };
    let server = server(&routes("ttl: 30s", ""));
    let mut stream = SotwStream::new(None);
    stream.requested(reading("xds.config.resource-in-sotw", ROUTE, "a b")).unwrap();
    let first = stream.next(&server.catalogue()).unwrap();
    assert_eq!((first.resources.len(), lives(&first).len()), (2, 1));
    stream.requested(ack(&first, "a b")).unwrap();
    let start = Instant::now();
    stream.elapsed(start);
    stream.elapsed(start + Duration::from_secs(10));
    let heartbeat = stream.next(&server.catalogue()).unwrap();
    assert_eq!((&heartbeat.version_info, heartbeat.resources.len()), (&first.version_info, 1));
    assert_eq!(lives(&heartbeat), [("a".to_owned(), first.version_info.clone(), seconds(30), false)]);
    stream.requested(ack(&heartbeat, "a b")).unwrap();
    // What is refused has another version than the one that a heartbeat is for.
    server.serve_text(&routes("ttl: 30s", "{name: h, domains: ['*']}")).unwrap();
    let refused = stream.next(&server.catalogue()).unwrap();
    stream.requested(nack(&refused, &first.version_info, "a b")).unwrap();
    stream.elapsed(start + Duration::from_secs(20));
    assert_eq!(stream.next(&server.catalogue()), None);
}

/// Without heartbeats, in both variants.
#[tokio::test]
async fn a_resource_of_a_source_that_is_gone_is_removed_when_its_ttl_ends() {
    for variant in [Variant::Delta, Variant::Sotw] {
        ends_with_its_source(variant).await;
    }
}

async fn ends_with_its_source(variant: Variant) {
    let server = Server::start().await;
    server.source.serve_text(&clusters("ttl: 1s")).unwrap();
    let collection = "envoy.config.cluster.v3.Cluster".to_owned();
    let settings = SourceSettings::new("ns").collections(vec![Wanted { collection, required: true }]);
    let peer = Peer::new(server.address.to_string());
    let node = node("follower", "ns", Vec::new());
    let mut follower = StreamSource::xds(peer, variant, node, &settings).connect();
    let offer = timeout(SOON, follower.changes.recv()).await.unwrap().unwrap();
    assert_eq!(offer.content().resources.len(), 2);
    offer.accept();
    drop(server);
    let offer = timeout(SOON, follower.changes.recv()).await.unwrap().unwrap();
    let removed: Vec<_> = offer.content().removed.iter().map(ToString::to_string).collect();
    assert!(matches!(&removed[..], [name] if name.contains('a')), "{removed:?}");
}

fn host(aliases: &str) -> String {
    format!(
        "'@type': type.googleapis.com/envoy.service.discovery.v3.Resource\nname: routes/shop\n{aliases}\n\
         resource: {{'@type': {VIRTUAL_HOST}, name: shop, domains: [shop.example]}}\n"
    )
}

/// On demand, as Envoy asks for the virtual host of a request (VHDS).
#[test]
fn an_alias_is_answered_with_its_resource_once_it_is_known() {
    let server = server(&clusters(""));
    let mut stream = DeltaStream::new(None);
    let request =
        DeltaDiscoveryRequest { node: node_of(), ..subscribe(VIRTUAL_HOST, "routes/shop.example", "") };
    stream.requested(request).unwrap();
    let unknown = stream.next(&server.catalogue()).unwrap();
    assert_eq!(
        (unknown.resources.len(), &unknown.removed_resources[..]),
        (0, &list("routes/shop.example")[..])
    );
    stream.requested(accepted(&unknown)).unwrap();
    server.serve_text(&host("aliases: [routes/shop.example, routes/www.shop.example]")).unwrap();
    let known = stream.next(&server.catalogue()).unwrap();
    let [resource] = &known.resources[..] else { panic!("{known:?}") };
    assert_eq!(resource.name, "routes/shop");
    assert_eq!(resource.aliases, list("routes/shop.example routes/www.shop.example"));
    stream.requested(accepted(&known)).unwrap();
    // Another alias of what the client has.
    stream.requested(subscribe(VIRTUAL_HOST, "routes/www.shop.example", "")).unwrap();
    let again = stream.next(&server.catalogue()).unwrap();
    assert_eq!((again.resources.len(), again.removed_resources.len()), (1, 0));
    stream.requested(accepted(&again)).unwrap();
    server.serve_text(&host("").replace("routes/shop", "routes/other")).unwrap();
    let gone = stream.next(&server.catalogue()).unwrap();
    assert_eq!((gone.resources.len(), &gone.removed_resources[..]), (0, &list("routes/shop")[..]));
}

#[test]
fn a_resource_belongs_to_the_glob_collections_of_its_aliases() {
    let server = server(&host("aliases: ['xdstp://a/envoy.config.route.v3.VirtualHost/eu/shop']"));
    let mut stream = DeltaStream::new(None);
    stream
        .requested(subscribe(VIRTUAL_HOST, "xdstp://a/envoy.config.route.v3.VirtualHost/eu/*", ""))
        .unwrap();
    let found = stream.next(&server.catalogue()).unwrap();
    assert_eq!((found.resources.len(), found.removed_resources.len()), (1, 0));
    assert_eq!(found.resources[0].name, "routes/shop");
    stream.requested(accepted(&found)).unwrap();
    server.serve_text(&host("").replace("routes/shop", "routes/other")).unwrap();
    let gone = stream.next(&server.catalogue()).unwrap();
    assert_eq!((gone.resources.len(), &gone.removed_resources[..]), (0, &list("routes/shop")[..]));
}

/// Names that are subscribed to and no longer, while everything is.
#[test]
fn a_wildcard_and_names_on_demand_are_one_subscription() {
    let server = server(&host("aliases: [routes/shop.example]"));
    let mut stream = DeltaStream::new(None);
    stream.requested(subscribe(VIRTUAL_HOST, "* routes/none.example", "")).unwrap();
    let first = stream.next(&server.catalogue()).unwrap();
    assert_eq!((first.resources.len(), &first.removed_resources[..]), (1, &list("routes/none.example")[..]));
    stream.requested(accepted(&first)).unwrap();
    stream.requested(subscribe(VIRTUAL_HOST, "routes/shop.example", "")).unwrap();
    let named = stream.next(&server.catalogue()).unwrap();
    assert_eq!(named.resources[0].name, "routes/shop");
    stream.requested(accepted(&named)).unwrap();
    stream.requested(subscribe(VIRTUAL_HOST, "", "routes/shop.example")).unwrap();
    let kept = stream.next(&server.catalogue()).unwrap();
    assert_eq!((kept.resources.len(), kept.removed_resources.len()), (1, 0), "the wildcard has it");
}

fn node_of() -> Option<Node> {
    super::messages::node("edge")
}

#[test]
fn an_envelope_that_cannot_be_read_is_a_fault() {
    let server = server(&clusters(""));
    for (line, reason) in [
        (
            "ttl: soon",
            "ttl: \"soon\" is not a valid duration of 1s or more; write it like \"5s\" or \"1m30s\"",
        ),
        ("ttl: 10ms", "ttl: \"10ms\" is not a valid duration of 1s or more"),
        ("aliases: b", "aliases: \"b\" is not a list of at most 100 names; write it like [\"a\", \"b\"]"),
        ("alias: [b]", "has no field \"alias\"; it has @type, name, aliases, ttl, resource, node"),
    ] {
        let faults = server.serve_text(&clusters(line)).unwrap_err();
        assert!(faults[0].to_string().contains(reason), "{line}: {}", faults[0]);
    }
}
