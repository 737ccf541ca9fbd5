//! What the envelope of a resource says: its time to live, and other names that it is found by.

use std::time::{Duration, Instant};

use mixer_adapter_config::{
    StreamSource,
    proto::envoy::{config::core::v3::Node, service::discovery::v3::DeltaDiscoveryRequest},
    source::{SourceSettings, Wanted},
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
use tokio::time::timeout;

use crate::{messages::*, sockets::Server};

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
    stream.requested(ask(CLUSTER, "")).unwrap();
    assert_eq!(stream.next(&server.catalogue()).unwrap().resources[0].type_url, CLUSTER, "bare");
}

/// Without heartbeats.
#[tokio::test]
async fn a_resource_of_a_source_that_is_gone_is_removed_when_its_ttl_ends() {
    let server = Server::start().await;
    server.source.serve_text(&clusters("ttl: 1s")).unwrap();
    let collection = "envoy.config.cluster.v3.Cluster".to_owned();
    let settings = SourceSettings::new("ns").collections(vec![Wanted { collection, required: true }]);
    let peer = Peer::new(server.address.to_string());
    let node = node("follower", "ns", Vec::new());
    let mut follower = StreamSource::xds(peer, Variant::Delta, node, &settings).connect();
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
    crate::messages::node("edge")
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
