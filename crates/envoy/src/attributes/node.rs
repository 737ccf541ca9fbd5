//! The sender of a stream of access logs.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use mixer_adapter_engine::attribute::StringMap;
use prost_types::{Struct, value::Kind};

use super::metadata::scalar;
use crate::proto::envoy::config::core::v3::Node;

/// Maximum number of connections of a stream whose bytes are remembered. Further ones have no differences.
const MAX_CONNECTIONS: usize = 100_000;

/// The Envoy that sends a stream, and the bytes of its open connections.
#[derive(Debug, Default)]
pub(crate) struct LogSender {
    /// `kubernetes://POD.NAMESPACE` of an Envoy of Istio.
    pub(super) uid: Option<String>,
    pub(super) pod: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) workload: Option<String>,
    pub(super) labels: Option<StringMap>,
    /// The bytes received and sent, by connection.
    connections: Mutex<HashMap<String, (u64, u64)>>,
}

impl LogSender {
    pub(crate) fn new(node: &Node) -> Self {
        let pod = node.id.split('~').nth(2).filter(|pod| !pod.is_empty());
        let metadata = node.metadata.as_ref();
        let text = |name: &str| {
            let value = metadata.and_then(|metadata| metadata.fields.get(name));
            value.and_then(scalar).filter(|text| !text.is_empty())
        };
        Self {
            uid: pod.map(|pod| format!("kubernetes://{pod}")),
            pod: text("NAME").or_else(|| Some(pod?.rsplit_once('.')?.0.to_owned())),
            namespace: text("NAMESPACE").or_else(|| Some(pod?.rsplit_once('.')?.1.to_owned())),
            workload: text("WORKLOAD_NAME"),
            labels: metadata
                .and_then(|metadata| labels(metadata, "LABELS").or_else(|| labels(metadata, "labels"))),
            connections: Mutex::default(),
        }
    }

    /// Returns the bytes of a connection since its last entry, from its totals.
    pub(super) fn difference(
        &self,
        id: &str,
        received: u64,
        sent: u64,
        is_closed: bool,
    ) -> Option<(u64, u64)> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match is_closed {
            true => connections.remove(id).unwrap_or_default(),
            false if connections.contains_key(id) || connections.len() < MAX_CONNECTIONS => {
                connections.insert(id.to_owned(), (received, sent)).unwrap_or_default()
            }
            false => return None,
        };
        Some((received.saturating_sub(before.0), sent.saturating_sub(before.1)))
    }
}

fn labels(metadata: &Struct, name: &str) -> Option<StringMap> {
    match metadata.fields.get(name)?.kind.as_ref()? {
        Kind::StructValue(labels) => {
            let labels = labels.fields.iter();
            Some(labels.filter_map(|(name, value)| Some((name.as_str(), scalar(value)?))).collect())
        }
        _ => None,
    }
}
