//! The sender of a stream of access logs.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use mixer_adapter_engine::attribute::StringMap;
use prost_types::{Struct, value::Kind};

use super::metadata::scalar;

/// `envoy.config.core.v3.Node` with the fields that are used. Extensions, most of its size, are not decoded.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Node {
    /// The name of the Envoy; Istio's have the form `sidecar~IP~POD.NAMESPACE~DOMAIN`.
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    /// Metadata of the bootstrap.
    #[prost(message, optional, tag = "3")]
    pub(crate) metadata: Option<Struct>,
}

/// Maximum number of connections of all streams whose bytes are remembered, 40 MB. Further connections have no differences.
const MAX_CONNECTIONS: usize = 1_000_000;

/// Longest text of a node that is used, in bytes.
const MAX_TEXT: usize = 1 << 10;

/// Maximum size of the labels of a node, in bytes.
const MAX_LABELS: usize = 16 << 10;

/// The number of connections whose bytes are remembered.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCount(AtomicUsize);

impl ConnectionCount {
    fn acquire(&self) -> bool {
        let updated =
            self.0.fetch_update(Relaxed, Relaxed, |count| (count < MAX_CONNECTIONS).then_some(count + 1));
        updated.is_ok()
    }

    fn release(&self, count: usize) {
        self.0.fetch_sub(count, Relaxed);
    }
}

/// The Envoy that sends a stream, and the bytes of its open connections.
#[derive(Debug, Default)]
pub(crate) struct LogSender {
    /// `kubernetes://POD.NAMESPACE` of an Envoy of Istio.
    pub(super) uid: Option<String>,
    pub(super) pod: Option<String>,
    pub(super) namespace: Option<Arc<str>>,
    pub(super) workload: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) labels: Option<StringMap>,
    connections: Connections,
}

/// The connections of a stream.
#[derive(Debug, Default)]
struct Connections {
    /// The bytes received and sent, by the hash of the connection's id.
    bytes: Mutex<HashMap<u64, (u64, u64)>>,
    hasher: RandomState,
    count: Arc<ConnectionCount>,
}

impl LogSender {
    /// Reads the node of a stream. `count` is the number of connections of all streams.
    pub(crate) fn new(node: Option<&Node>, count: Arc<ConnectionCount>) -> Self {
        let connections = Connections { bytes: Mutex::default(), hasher: RandomState::new(), count };
        let Some(node) = node else { return Self { connections, ..Self::default() } };
        let pod = node.id.split('~').nth(2).filter(|pod| !pod.is_empty() && pod.len() <= MAX_TEXT);
        let metadata = node.metadata.as_ref();
        let [name, namespace, workload, owner] =
            ["NAME", "NAMESPACE", "WORKLOAD_NAME", "OWNER"].map(|name| {
                let text = scalar(metadata?.fields.get(name)?);
                text.filter(|text| !text.is_empty() && text.len() <= MAX_TEXT)
            });
        Self {
            uid: pod.map(|pod| format!("kubernetes://{pod}")),
            pod: name.or_else(|| Some(pod?.rsplit_once('.')?.0.to_owned())),
            namespace: namespace.map(Arc::from).or_else(|| Some(pod?.rsplit_once('.')?.1.into())),
            workload,
            owner,
            labels: metadata
                .and_then(|metadata| labels(metadata, "LABELS").or_else(|| labels(metadata, "labels"))),
            connections,
        }
    }

    /// Returns the namespace of the sender, which is empty if it has none.
    pub(crate) fn tenant(&self) -> Arc<str> {
        self.namespace.clone().unwrap_or_default()
    }

    /// Returns the bytes of a connection since its last entry, from its totals.
    pub(super) fn difference(
        &self,
        id: &str,
        received: u64,
        sent: u64,
        is_closed: bool,
    ) -> Option<(u64, u64)> {
        let Connections { bytes, hasher, count } = &self.connections;
        let id = hasher.hash_one(id);
        let mut bytes = bytes.lock();
        let before = if is_closed {
            bytes.remove(&id).inspect(|_| count.release(1))
        } else if bytes.contains_key(&id) || count.acquire() {
            bytes.insert(id, (received, sent))
        } else {
            return None;
        };
        let before = before.unwrap_or_default();
        Some((received.saturating_sub(before.0), sent.saturating_sub(before.1)))
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let bytes = self.bytes.get_mut();
        self.count.release(bytes.len());
    }
}

/// Returns the labels in a field of metadata, unless they are too large.
pub(super) fn labels(metadata: &Struct, name: &str) -> Option<StringMap> {
    let Kind::StructValue(labels) = metadata.fields.get(name)?.kind.as_ref()? else { return None };
    let labels: Vec<(&str, String)> =
        labels.fields.iter().filter_map(|(name, value)| Some((name.as_str(), scalar(value)?))).collect();
    let size: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
    (size <= MAX_LABELS).then(|| labels.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_all_streams_are_bounded_together() {
        let count = Arc::new(ConnectionCount(AtomicUsize::new(MAX_CONNECTIONS - 1)));
        let [one, other] = [(); 2].map(|()| LogSender::new(None, count.clone()));
        assert_eq!(one.difference("a", 5, 1, false), Some((5, 1)));
        assert_eq!(other.difference("b", 5, 1, false), None);
        assert_eq!(one.difference("a", 7, 2, false), Some((2, 1)), "one that is known goes on");
        assert_eq!(one.difference("a", 9, 2, true), Some((2, 0)));
        assert_eq!(other.difference("b", 6, 1, false), Some((6, 1)));
        drop(other);
        assert_eq!(count.0.load(Relaxed), MAX_CONNECTIONS - 1);
    }
}
