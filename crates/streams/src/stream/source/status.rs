//! The status of the sinks of a source.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use serde::Serialize;

use super::dialogue::{Event, Meaning};
use crate::{
    certify::Violation,
    stream::metrics::{Client, SOURCE},
};
use mixer_adapter_config::{MAX_TEXT, truncate};

/// A connected sink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PeerStatus {
    /// The address.
    pub peer: String,
    /// The stated id.
    pub id: String,
    /// The stated annotations.
    pub annotations: BTreeMap<String, String>,
    /// The state of each collection.
    pub collections: BTreeMap<String, WatchStatus>,
    /// The violated rules, if the source checks them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
}

/// The state of a collection at a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WatchStatus {
    /// The version that it accepted last.
    pub accepted: Option<String>,
    /// The version that it refused last and the reason, unless it accepted one since.
    pub refused: Option<(String, String)>,
}

/// The connected sinks.
#[derive(Clone, Debug, Default)]
pub(super) struct Registry {
    peers: Arc<Mutex<BTreeMap<u64, PeerStatus>>>,
    next: Arc<AtomicU64>,
}

/// A registered sink, until this is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    id: u64,
    registry: Registry,
    /// The counter of its stream.
    _client: Option<Client>,
}

impl Registry {
    pub(super) fn register(&self, peer: String) -> Registered {
        self.insert(PeerStatus { peer, ..PeerStatus::default() }, Some(SOURCE.opened()))
    }

    /// Lists a client, which has no stream without `client`.
    pub(super) fn insert(&self, peer: PeerStatus, client: Option<Client>) -> Registered {
        let id = self.next.fetch_add(1, Relaxed);
        self.peers.lock().insert(id, peer);
        Registered { id, registry: self.clone(), _client: client }
    }

    pub(super) fn peers(&self) -> Vec<PeerStatus> {
        self.peers.lock().values().cloned().collect()
    }
}

impl WatchStatus {
    /// Records the reason of a refusal. Returns whether it is new: the previous version was not refused for it.
    fn refuse(&mut self, version: String, reason: &str) -> bool {
        let reason = truncate(reason, MAX_TEXT);
        let known = self.refused.replace((version, reason.clone()));
        known.is_none_or(|(_, known)| known != reason)
    }
}

impl Registered {
    /// Records and logs violated rules.
    pub(super) fn record_violations(&self, violations: Vec<Violation>) {
        let mut peers = self.registry.peers.lock();
        let Some(peer) = peers.get_mut(&self.id) else { return };
        for Violation { rule, observed, .. } in &violations {
            let observed = truncate(observed, MAX_TEXT);
            tracing::warn!(peer = peer.peer, sink = peer.id, rule, observed, "a client breaks a rule");
        }
        peer.violations.extend(violations);
    }

    /// Logs whether the sink has violated rules.
    pub(super) fn log_certified(&self) {
        let peers = self.registry.peers.lock();
        let Some(peer) = peers.get(&self.id) else { return };
        let violations = peer.violations.len();
        tracing::info!(peer = peer.peer, sink = peer.id, violations, "the checks of a client are complete");
    }

    /// Records a request, and returns the id of the sink. The reason of a refusal is logged when it changes.
    pub(super) fn record(&self, event: Event) -> String {
        let mut peers = self.registry.peers.lock();
        let Some(peer) = peers.get_mut(&self.id) else { return String::new() };
        if let Some(sink) = event.sink {
            (peer.id, peer.annotations) = (sink.id, sink.annotations);
        }
        let collection = event.collection;
        match &event.meaning {
            Meaning::Accepted => SOURCE.acked(&collection),
            Meaning::Refused(error) => SOURCE.nacked(&collection, error.code),
            _ => {}
        }
        match (event.meaning, event.sent) {
            (Meaning::Accepted, Some(version)) => {
                let watch = WatchStatus { accepted: Some(version), refused: None };
                peer.collections.insert(collection, watch);
            }
            (Meaning::Refused(error), Some(version)) => {
                let watch = peer.collections.entry(collection.clone()).or_default();
                if watch.refuse(version, &error.message) {
                    let (peer, sink, code) = (&peer.peer, &peer.id, error.code);
                    tracing::warn!(
                        peer,
                        sink,
                        collection,
                        code,
                        "a sink refuses configuration: {}",
                        truncate(&error.message, MAX_TEXT)
                    );
                }
            }
            (Meaning::Stale, _) => {
                tracing::debug!(
                    peer = peer.peer,
                    sink = peer.id,
                    collection,
                    "an answer to no push is ignored"
                );
            }
            _ => {}
        }
        peer.id.clone()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.peers.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mixer_adapter_core::proto;

    #[test]
    fn a_reason_is_news_once_until_something_is_accepted() {
        let mut watch = WatchStatus::default();
        let told = [("1", "no"), ("2", "no"), ("3", "never"), ("4", "no")];
        let told = told.map(|(version, reason)| watch.refuse(version.to_owned(), reason));
        assert_eq!(told, [true, false, true, true]);
    }

    #[test]
    fn what_is_accepted_ends_what_was_refused() {
        let registry = Registry::default();
        let registered = registry.register("1.2.3.4:5".to_owned());
        let event = |meaning, version: &str| Event {
            sink: None,
            collection: "c".to_owned(),
            meaning,
            sent: Some(version.to_owned()),
        };
        let refusal = proto::Status { code: 3, message: "no".to_owned(), details: Vec::new() };
        registered.record(event(Meaning::Accepted, "1"));
        registered.record(event(Meaning::Refused(refusal), "2"));
        registered.record(event(Meaning::Stale, "2"));
        let status = registry.peers().remove(0).collections.remove("c").unwrap_or_default();
        let refused = Some(("2".to_owned(), "no".to_owned()));
        assert_eq!(status, WatchStatus { accepted: Some("1".to_owned()), refused });
        registered.record(event(Meaning::Accepted, "3"));
        let status = registry.peers().remove(0).collections.remove("c").unwrap_or_default();
        assert_eq!(status, WatchStatus { accepted: Some("3".to_owned()), refused: None });
        drop(registered);
        assert_eq!(registry.peers(), []);
    }
}
