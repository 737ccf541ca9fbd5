//! The work for a response is linear in its size, from its bytes to the request that answers it.

use std::time::Duration;

use mixer_adapter_config::proto::istio::policy::v1beta1::Rule;
use mixer_adapter_core::proto::Any;
use mixer_adapter_net::Rate;
use mixer_adapter_streams::{
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse, Resource},
        },
        istio::mcp::v1alpha1,
    },
    stream::sink::{Dialect, Mode},
    xds::sink::{Delta, Sotw, Versions},
};
use prost::{Message, Name as _};

use super::{
    client::{Client, options},
    linear::assert_linear,
    messages::*,
};

/// So that all answers are sent at once.
const UNLIMITED: Rate = Rate { burst: 1_000_000, every: Duration::from_millis(1) };

/// Asserts that the work for a first response, and for others after it, is linear.
fn responses<D: Dialect>(
    name: &str,
    mode: Mode,
    new: fn(Node, Versions) -> D,
    responses: impl Fn(usize) -> Vec<D::Response>,
) where
    D::Request: Shape,
    D::Response: Message + Default,
{
    assert_linear(name, |n| {
        let mut client = Client::open(new, options(mode, &[RULES]).requests(UNLIMITED));
        for response in responses(n) {
            client.receive(D::Response::decode(&response.encode_to_vec()[..]).unwrap());
            client.accept();
        }
        assert!(client.ended.is_empty(), "{:?}", client.ended);
    });
}

fn sotw(name: &str, of: impl Fn(usize) -> Vec<DiscoveryResponse>) {
    responses(name, Mode::Full, |node, _| Sotw::new(node), of);
}

fn delta(name: &str, of: impl Fn(usize) -> Vec<DeltaDiscoveryResponse>) {
    responses(name, Mode::Delta, Delta::new, of);
}

fn texts(n: usize, version: &str) -> Vec<String> {
    (0..n).map(|index| format!("ns/r{index}@{version}")).collect()
}

fn whole_set(n: usize, version: &str) -> DiscoveryResponse {
    whole(RULE, version, &texts(n, version).iter().map(String::as_str).collect::<Vec<_>>())
}

fn changed(n: usize, version: &str) -> DeltaDiscoveryResponse {
    changes(RULE, version, &texts(n, version).iter().map(String::as_str).collect::<Vec<_>>(), &[])
}

#[test]
fn resources_of_whole_sets() {
    sotw("resources", |n| vec![whole_set(n, "1"), whole_set(n, "2"), whole_set(0, "3")]);
    sotw("resources without an envelope", |n| {
        let rule = any(&Rule::full_name(), Rule::default().encode_to_vec());
        vec![DiscoveryResponse { resources: vec![rule; n], ..whole_set(0, "1") }]
    });
    sotw("resources that cannot be read", |n| {
        let broken = any(&v1alpha1::Resource::full_name(), vec![0xff]);
        vec![DiscoveryResponse { resources: vec![broken; n], ..whole_set(0, "1") }]
    });
}

#[test]
fn resources_of_changes() {
    delta("resources", |n| vec![changed(n, "1"), changed(n, "2")]);
    delta("resources without a name", |n| {
        let nameless = Resource { resource: Some(Any::default()), ..Resource::default() };
        vec![DeltaDiscoveryResponse { resources: vec![nameless; n], ..changed(0, "1") }]
    });
    delta("aliases", |n| {
        let aliased = Resource { aliases: texts(n, "1"), ..named("ns/a@1") };
        vec![DeltaDiscoveryResponse { resources: vec![aliased], ..changed(0, "1") }]
    });
    delta("heartbeats", |n| {
        let heartbeat = |name: String| Resource {
            name,
            ttl: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
            ..Resource::default()
        };
        let heartbeats = texts(n, "1").into_iter().map(heartbeat).collect();
        vec![changed(n, "1"), DeltaDiscoveryResponse { resources: heartbeats, ..changed(0, "2") }]
    });
}

#[test]
fn removed_resources_of_changes() {
    let removing = |n: usize| DeltaDiscoveryResponse {
        removed_resources: (0..n).map(|index| format!("ns/r{index}")).collect(),
        ..changed(0, "2")
    };
    delta("removed", |n| vec![changed(n, "1"), removing(n)]);
    delta("removed of none", |n| vec![changed(1, "1"), removing(n)]);
}

#[test]
fn responses_with_one_change() {
    delta("responses", |n| {
        let change = |index| changes(RULE, &format!("n{index}"), &[&format!("ns/r{index}@2")], &[]);
        [vec![changed(n, "1")], (0..n).map(change).collect()].concat()
    });
}
