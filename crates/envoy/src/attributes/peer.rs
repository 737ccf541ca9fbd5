//! The workloads on both sides of a connection, which Envoys of Istio exchange and store in the state of filters
//! (docs/behaviour/envoy.md#peers-in-access-logs).

use std::collections::BTreeMap;

use mixer_adapter_core::proto::Any;
use mixer_adapter_engine::attribute::AttributeValue;
use prost::Message as _;
use prost_types::Struct;

use super::{builder::AttributeBuilder, metadata::scalar, node::labels};

/// The objects of each side, of Istio since 1.24 and of earlier releases.
const PEERS: [(&str, [&str; 2]); 2] = [
    ("source", ["downstream_peer", "wasm.downstream_peer"]),
    ("destination", ["upstream_peer", "wasm.upstream_peer"]),
];

/// Sets the workloads of peers. Certificates and the sender's node take precedence.
pub(super) fn set_peers(attributes: &mut AttributeBuilder, objects: &BTreeMap<String, Any>) {
    for (side, names) in PEERS {
        let peer = names.iter().find_map(|name| structure(objects.get(*name)?));
        if let Some(peer) = peer {
            set_peer(attributes, side, &peer);
        }
    }
}

fn structure(object: &Any) -> Option<Struct> {
    (object.message_name() == "google.protobuf.Struct").then(|| Struct::decode(&*object.value).ok()).flatten()
}

fn set_peer(attributes: &mut AttributeBuilder, side: &str, peer: &Struct) {
    let [name, namespace, workload] = ["name", "namespace", "workload"]
        .map(|name| peer.fields.get(name).and_then(scalar).filter(|text| !text.is_empty()));
    let uid = name.as_ref().zip(namespace.as_ref());
    let uid = uid.map(|(name, namespace)| format!("kubernetes://{name}.{namespace}"));
    let values: [(&str, Option<AttributeValue>); 6] = [
        ("uid", uid.map(Into::into)),
        ("workload.namespace", workload.as_ref().and(namespace.clone()).map(Into::into)),
        ("workload.name", workload.map(Into::into)),
        ("name", name.map(Into::into)),
        ("namespace", namespace.map(Into::into)),
        ("labels", labels(peer, "labels").map(Into::into)),
    ];
    for (name, value) in values {
        let name = format!("{side}.{name}");
        if !attributes.has(&name) {
            attributes.set_some(&name, value);
        }
    }
}
