//! What a source shows of its sinks.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use serde::Serialize;

use super::{Machine, Meaning};
use crate::proto::istio::mcp::v1alpha1::SinkNode;

/// A sink, as its source sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeerStatus {
    /// Where it is.
    pub peer: String,
    /// Who it says it is.
    pub id: String,
    /// What it says of itself.
    pub annotations: BTreeMap<String, String>,
    /// What it has, by collection.
    pub collections: BTreeMap<String, WatchStatus>,
}

/// What a sink has of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WatchStatus {
    /// The version it accepted last.
    pub accepted: Option<String>,
    /// The version it refused last and why, unless it accepted one since.
    pub refused: Option<(String, String)>,
}

/// The sinks that are connected.
#[derive(Clone, Debug, Default)]
pub(super) struct Registry {
    peers: Arc<Mutex<BTreeMap<u64, PeerStatus>>>,
    next: Arc<AtomicU64>,
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    id: u64,
    peer: String,
    registry: Registry,
}

impl Registry {
    pub(super) fn register(&self, peer: String) -> Registered {
        let id = self.next.fetch_add(1, Relaxed);
        self.lock().insert(id, PeerStatus { peer: peer.clone(), ..PeerStatus::default() });
        Registered { id, peer, registry: self.clone() }
    }

    pub(super) fn peers(&self) -> Vec<PeerStatus> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, PeerStatus>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// Notes what a request said.
    pub(super) fn record(&self, node: SinkNode, collection: &str, meaning: &Meaning, machine: &Machine) {
        let mut peers = self.registry.lock();
        let Some(peer) = peers.get_mut(&self.id) else { return };
        if !node.id.is_empty() {
            (peer.id, peer.annotations) = (node.id, node.annotations);
        }
        let Some(version) = machine.sent(collection).map(|version| version.to_string()) else { return };
        match meaning {
            Meaning::Accepted => {
                let watch = WatchStatus { accepted: Some(version), refused: None };
                peer.collections.insert(collection.to_owned(), watch);
            }
            Meaning::Refused(error) => {
                let watch = peer.collections.entry(collection.to_owned()).or_default();
                watch.refused = Some((version, error.message.clone()));
            }
            Meaning::Asked | Meaning::Stale | Meaning::Triggered => {}
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.id);
    }
}
