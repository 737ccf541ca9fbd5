//! The workloads on both sides of a connection, which Envoys of Istio exchange and store in the state of filters
//! (docs/behaviour/envoy.md#peers-in-access-logs).

use std::collections::BTreeMap;

use mixer_adapter_core::proto::Any;
use mixer_adapter_engine::attribute::{AttributeValue, Standard};
use prost::Message as _;
use prost_types::Struct;

use super::{builder::AttributeBuilder, metadata::scalar, node::labels};

/// The attributes of a workload, on each side.
pub(super) const SOURCE: [Standard; 7] = [
    standard!("source.name"),
    standard!("source.uid"),
    standard!("source.namespace"),
    standard!("source.workload.name"),
    standard!("source.workload.namespace"),
    standard!("source.owner"),
    standard!("source.labels"),
];
pub(super) const DESTINATION: [Standard; 7] = [
    standard!("destination.name"),
    standard!("destination.uid"),
    standard!("destination.namespace"),
    standard!("destination.workload.name"),
    standard!("destination.workload.namespace"),
    standard!("destination.owner"),
    standard!("destination.labels"),
];

/// The objects of each side, of Istio since 1.24 and of earlier releases.
const PEERS: [([Standard; 7], [&str; 2]); 2] = [
    (SOURCE, ["downstream_peer", "wasm.downstream_peer"]),
    (DESTINATION, ["upstream_peer", "wasm.upstream_peer"]),
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

fn set_peer(attributes: &mut AttributeBuilder, side: [Standard; 7], peer: &Struct) {
    let [name, namespace, workload] = ["name", "namespace", "workload"]
        .map(|name| peer.fields.get(name).and_then(scalar).filter(|text| !text.is_empty()));
    let uid = name.as_ref().zip(namespace.as_ref());
    let uid = uid.map(|(name, namespace)| format!("kubernetes://{name}.{namespace}"));
    let workload_namespace = workload.as_ref().and(namespace.clone());
    // A peer has no owner.
    let texts = [name, uid, namespace, workload, workload_namespace, None];
    let values = texts.map(|text| text.map(AttributeValue::from)).into_iter();
    let values = values.chain([labels(peer, "labels").map(AttributeValue::from)]);
    for (attribute, value) in side.into_iter().zip(values) {
        if !attributes.has(attribute) {
            attributes.set_some(attribute, value);
        }
    }
}
