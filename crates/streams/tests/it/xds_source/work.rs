//! The work for a request is linear in its size and in what is served, from its bytes to the response.

use mixer_adapter_streams::proto::envoy::{
    config::core::v3::{Extension, Node},
    service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
};
use prost::Message as _;

use super::{
    linear::assert_linear,
    messages::*,
    world::{Delta, Sotw},
};

fn names(n: usize) -> Vec<String> {
    (0..n).map(|index| format!("r{index}")).collect()
}

/// `n` resources of a version.
fn resources(n: usize, version: &str) -> String {
    names(n).iter().map(|name| format!("{name}@{version} ")).collect()
}

/// Asserts that the work for requests for clusters, of which there are `n`, is linear.
fn sotw(name: &str, requests: impl Fn(usize) -> Vec<DiscoveryRequest>) {
    assert_linear(name, |n| {
        let mut server = Sotw::new();
        server.set(CLUSTER, &resources(n, "1"));
        for request in requests(n) {
            server.request(DiscoveryRequest::decode(&request.encode_to_vec()[..]).unwrap());
            while let Some(push) = server.next() {
                let ack = DiscoveryRequest {
                    version_info: push.version_info,
                    response_nonce: push.nonce,
                    ..request.clone()
                };
                server.request(ack);
            }
        }
    });
}

fn delta(name: &str, requests: impl Fn(usize) -> Vec<DeltaDiscoveryRequest>) {
    assert_linear(name, |n| {
        let mut server = Delta::new();
        server.set(CLUSTER, &resources(n, "1"));
        for request in requests(n) {
            server.request(DeltaDiscoveryRequest::decode(&request.encode_to_vec()[..]).unwrap());
            while let Some(push) = server.next() {
                server.request(accepted(&push));
            }
        }
    });
}

/// A node with `n` of everything that it may have several of.
fn large_node(n: usize) -> Node {
    let fields = names(n).into_iter().map(|name| (name, prost_types::Value::default())).collect();
    let extension = Extension { type_urls: names(n), ..Extension::default() };
    Node {
        metadata: Some(prost_types::Struct { fields }),
        client_features: names(n),
        extensions: [vec![extension], vec![Extension::default(); n]].concat(),
        ..Node::default()
    }
}

#[test]
fn names_of_whole_sets() {
    sotw("all", |_| vec![ask(CLUSTER, "")]);
    sotw("names", |n| vec![ask(CLUSTER, &names(n).join(" "))]);
    sotw("one name", |n| {
        vec![DiscoveryRequest { resource_names: vec!["r0".to_owned(); n], ..ask(CLUSTER, "") }]
    });
    sotw("a node", |n| vec![DiscoveryRequest { node: Some(large_node(n)), ..ask(CLUSTER, "") }]);
}

#[test]
fn names_of_changes() {
    let all = |_| subscribe(CLUSTER, "", "");
    delta("all", |n| vec![all(n)]);
    delta("subscribed", |n| vec![subscribe(CLUSTER, &names(n).join(" "), "")]);
    delta("unsubscribed", |n| {
        let names = names(n).join(" ");
        vec![subscribe(CLUSTER, &names, ""), subscribe(CLUSTER, "", &names)]
    });
    delta("unsubscribed from a wildcard", |n| vec![all(n), subscribe(CLUSTER, "", &names(n).join(" "))]);
    delta("subscribed one by one", |n| names(n).iter().map(|name| subscribe(CLUSTER, name, "")).collect());
    delta("versions", |n| {
        let versions = names(n).into_iter().map(|name| (name, "1".to_owned())).collect();
        vec![DeltaDiscoveryRequest { initial_resource_versions: versions, ..all(n) }]
    });
    delta("a node", |n| vec![DeltaDiscoveryRequest { node: Some(large_node(n)), ..all(n) }]);
}
