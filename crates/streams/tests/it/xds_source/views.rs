//! What each node is served: by the selectors of resources, and by what refers to them.

use mixer_adapter_streams::{
    proto::envoy::{
        config::core::v3::{Locality, Node},
        service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    },
    stream::source::{Catalogue, ConfigServer, ConfigServerOptions},
    xds::source::{DeltaStream, SotwStream, fetch},
};
use prost_types::{Struct, Value, value::Kind};

use super::messages::{CLUSTER, ENDPOINT, LISTENER, ROUTE, accepted, ack, ask, subscribe};

/// Two regions, each with clusters and listeners of its own, and what they refer to.
const RESOURCES: &str = "
'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster
name: everywhere
---
'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster
name: shop
type: EDS
node: {cluster: edge}
---
'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster
name: stock
type: EDS
eds_cluster_config: {service_name: stock-endpoints}
node: {locality: {region: eu}, metadata: {tier: back}}
---
'@type': type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
cluster_name: shop
---
'@type': type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
cluster_name: stock-endpoints
---
'@type': type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
cluster_name: of-a-static-cluster
---
node: {id: edge-*}
resources:
- '@type': type.googleapis.com/envoy.config.listener.v3.Listener
  name: front
  filter_chains:
  - filters:
    - name: envoy.filters.network.http_connection_manager
      typed_config:
        '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        rds: {route_config_name: front_routes}
- '@type': type.googleapis.com/envoy.config.listener.v3.Listener
  name: inside
  node: {id: back-*}
---
'@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration
name: front_routes
---
'@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration
name: other_routes
";

fn server() -> ConfigServer {
    let server = ConfigServer::new(Catalogue::default().open(), ConfigServerOptions::default());
    server.serve_text(RESOURCES).unwrap();
    server
}

fn edge() -> Node {
    Node { id: "edge-1".to_owned(), cluster: "edge".to_owned(), ..Node::default() }
}

fn back() -> Node {
    let tier = Value { kind: Some(Kind::StringValue("back".to_owned())) };
    Node {
        id: "back-1".to_owned(),
        cluster: "back".to_owned(),
        locality: Some(Locality { region: "eu".to_owned(), ..Locality::default() }),
        metadata: Some(Struct { fields: [("tier".to_owned(), tier)].into() }),
        ..Node::default()
    }
}

/// The names of a type that a node is served without naming any.
fn served(server: &ConfigServer, type_url: &str, node: Node) -> Vec<String> {
    let request = DeltaDiscoveryRequest { node: Some(node), ..subscribe(type_url, "", "") };
    let mut stream = DeltaStream::new(None);
    stream.requested(request).unwrap();
    let push = stream.next(&server.catalogue()).unwrap();
    push.resources.into_iter().map(|resource| resource.name).collect()
}

#[test]
fn clusters_and_listeners_are_those_of_the_node() {
    let server = server();
    assert_eq!(served(&server, CLUSTER, edge()), ["everywhere", "shop"]);
    assert_eq!(served(&server, CLUSTER, back()), ["everywhere", "stock"]);
    assert_eq!(served(&server, CLUSTER, Node::default()), ["everywhere"]);
    assert_eq!(served(&server, LISTENER, edge()), ["front"]);
    assert_eq!(
        served(&server, LISTENER, back()),
        ["inside"],
        "its own selector instead of that of its document"
    );
}

/// Requests need no names: what a node needs follows from its clusters and listeners.
#[test]
fn endpoints_and_routes_are_inferred_from_the_node() {
    let server = server();
    assert_eq!(served(&server, ENDPOINT, edge()), ["of-a-static-cluster", "shop"]);
    assert_eq!(served(&server, ENDPOINT, back()), ["of-a-static-cluster", "stock-endpoints"]);
    assert_eq!(served(&server, ROUTE, edge()), ["front_routes", "other_routes"]);
    assert_eq!(served(&server, ROUTE, back()), ["other_routes"]);
}

/// A route is also that of a node when a scoped route that it sees refers to it, or one that is within a listener.
#[test]
fn routes_of_scoped_routes_are_inferred_from_the_node() {
    let resources = "
'@type': type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration
name: scope
route_configuration_name: of_a_scope
key: {fragments: [{string_key: a}]}
node: {id: edge-*}
---
'@type': type.googleapis.com/envoy.config.listener.v3.Listener
name: scoped
node: {id: back-*}
filter_chains:
- filters:
  - name: envoy.filters.network.http_connection_manager
    typed_config:
      '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      scoped_routes:
        name: inside
        scope_key_builder: {fragments: [{header_value_extractor: {name: x, index: 0}}]}
        scoped_route_configurations_list:
          scoped_route_configurations:
          - {name: b, route_configuration_name: of_a_listener, key: {fragments: [{string_key: b}]}}
---
'@type': type.googleapis.com/envoy.config.listener.v3.Listener
name: other
node: {id: other-*}
filter_chains:
- filters:
  - name: envoy.filters.network.http_connection_manager
    typed_config:
      '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      rds: {route_config_name: of_a_scope}
---
'@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration
name: of_a_scope
---
'@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration
name: of_a_listener
";
    let server = server();
    server.serve_text(resources).unwrap();
    assert_eq!(served(&server, ROUTE, edge()), ["of_a_scope"]);
    assert_eq!(served(&server, ROUTE, back()), ["of_a_listener"]);
}

#[test]
fn the_state_of_the_world_is_that_of_the_node_and_a_change_for_others_is_none() {
    let server = server();
    let mut stream = SotwStream::new(None);
    stream.requested(DiscoveryRequest { node: Some(back()), ..ask(CLUSTER, "") }).unwrap();
    let first = stream.next(&server.catalogue()).unwrap();
    assert_eq!(first.resources.len(), 2);
    // Only the first request has the node.
    stream.requested(ack(&first, "")).unwrap();
    server
        .serve_text(
            &RESOURCES.replace("v3.Cluster\nname: shop\n", "v3.Cluster\nname: shop\nalt_stat_name: s\n"),
        )
        .unwrap();
    assert_eq!(stream.next(&server.catalogue()), None, "of the edge only");
    server.serve_text(&RESOURCES.replace("cluster: edge", "cluster: [edge, back]")).unwrap();
    assert_eq!(stream.next(&server.catalogue()).unwrap().resources.len(), 3);
}

#[test]
fn a_resource_that_is_no_longer_for_a_node_is_removed_there() {
    let server = server();
    let mut stream = DeltaStream::new(None);
    stream.requested(DeltaDiscoveryRequest { node: Some(edge()), ..subscribe(CLUSTER, "", "") }).unwrap();
    let first = stream.next(&server.catalogue()).unwrap();
    stream.requested(accepted(&first)).unwrap();
    server.serve_text(&RESOURCES.replace("node: {cluster: edge}", "node: {cluster: canary}")).unwrap();
    let push = stream.next(&server.catalogue()).unwrap();
    assert_eq!((push.resources.len(), push.removed_resources), (0, vec!["shop".to_owned()]));
}

#[test]
fn requests_without_a_stream_are_answered_for_their_node() {
    let server = server();
    let names = |node| {
        let request = DiscoveryRequest { node, ..ask(CLUSTER, "") };
        fetch(&server.catalogue(), &request).unwrap().unwrap().resources.len()
    };
    assert_eq!((names(Some(edge())), names(None)), (2, 1));
}

#[test]
fn a_selector_that_cannot_be_read_is_a_fault_and_its_resource_is_served_to_nobody() {
    let server = server();
    let text = RESOURCES.replace("{cluster: edge}", "{clutser: edge}");
    let faults = server.serve_text(&text).unwrap_err();
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    assert!(
        fault.to_string().ends_with("a selector of nodes has no field \"clutser\"; did you mean cluster?"),
        "{fault}"
    );
}

/// Resources of Istio have the selector as an annotation.
#[test]
fn the_annotation_selects_nodes_too() {
    let server = server();
    let entry = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: e, namespace: ns, annotations: {mixer-adapter/node: '{id: edge-*}'}}
spec: {hosts: [a.b]}
";
    server.serve_text(entry).unwrap();
    let entries = "networking.istio.io/v1/ServiceEntry";
    assert_eq!(served(&server, entries, edge()), ["ns/e"]);
    assert!(served(&server, entries, back()).is_empty());
}
