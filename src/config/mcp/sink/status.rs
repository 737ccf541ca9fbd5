//! What a sink shows of itself.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::Serialize;

use super::{CollectionView, Machine, StreamId};
use crate::proto::istio::mcp::v1alpha1::{RequestResources, Resources};

/// What a sink does, for people.
#[derive(Clone, Debug, Serialize)]
pub struct SinkStatus {
    /// The sink's id.
    pub id: String,
    /// The sink's annotations.
    pub annotations: BTreeMap<String, String>,
    /// The sources it has streams with.
    pub sources: Vec<String>,
    /// What it knows of each collection.
    pub collections: Vec<CollectionStatus>,
    /// The last messages, the newest last.
    pub messages: Vec<Entry>,
}

/// What a sink knows of one collection.
#[derive(Clone, Debug, Serialize)]
pub struct CollectionStatus {
    /// The collection.
    pub collection: String,
    /// Whether the sink is ready only with it.
    pub required: bool,
    /// The version it holds.
    pub version: String,
    /// How many resources that has.
    pub resources: usize,
    /// Whether it is of this run, rather than from the cache.
    pub synced: bool,
    /// Whether the source does not serve it.
    pub unsupported: bool,
    /// How long ago a push was accepted last, in seconds.
    pub accepted_seconds_ago: Option<u64>,
    /// The version that was refused last and why, unless one was accepted since.
    pub refused: Option<Refusal>,
}

/// A push that was refused.
#[derive(Clone, Debug, Serialize)]
pub struct Refusal {
    /// Its version.
    pub version: String,
    /// Why.
    pub reason: String,
}

/// A message in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// When, in seconds since 1970.
    pub time: u64,
    /// The stream, counted since the start.
    pub stream: StreamId,
    /// `ask`, `ack` and `nack` went to a source, `push` came from one.
    pub kind: &'static str,
    /// The collection.
    pub collection: String,
    /// What names the push that it is, or answers.
    pub nonce: String,
    /// The number of resources in a push, or the reason of a refusal.
    pub what: String,
}

/// How many messages are remembered: as many as in Istio's sinks.
const REMEMBERED: usize = 32;

/// The last messages.
#[derive(Debug, Default)]
pub(super) struct Journal(VecDeque<Entry>);

impl Journal {
    fn record(&mut self, entry: Entry) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(entry);
    }

    fn snapshot(&self) -> Vec<Entry> {
        self.0.iter().cloned().collect()
    }
}

/// What can be seen of a sink from outside.
#[derive(Debug, Default)]
pub(super) struct Observed {
    journal: Journal,
    peers: BTreeMap<StreamId, String>,
    accepted: BTreeMap<Arc<str>, tokio::time::Instant>,
}

impl Observed {
    pub(super) fn opened(&mut self, id: StreamId, peer: String) {
        self.peers.insert(id, peer);
    }

    pub(super) fn closed(&mut self, id: StreamId) {
        self.peers.remove(&id);
    }

    pub(super) fn peer(&self, id: StreamId) -> &str {
        self.peers.get(&id).map_or("", String::as_str)
    }

    pub(super) fn accepted(&mut self, collection: &Arc<str>) {
        self.accepted.insert(collection.clone(), tokio::time::Instant::now());
    }

    pub(super) fn sent(&mut self, stream: StreamId, request: &RequestResources) {
        let (kind, what) = match &request.error_detail {
            Some(error) => ("nack", error.message.clone()),
            None if request.response_nonce.is_empty() => ("ask", String::new()),
            None => ("ack", String::new()),
        };
        let (collection, nonce) = (request.collection.clone(), request.response_nonce.clone());
        self.journal.record(Entry { time: unix_time(), stream, kind, collection, nonce, what });
    }

    pub(super) fn received(&mut self, stream: StreamId, push: &Resources) {
        let removed = push.removed_resources.len();
        let what = match push.incremental {
            true => format!("{} changed, {removed} removed", push.resources.len()),
            false => format!("{} in all", push.resources.len()),
        };
        let (collection, nonce) = (push.collection.clone(), push.nonce.clone());
        self.journal.record(Entry { time: unix_time(), stream, kind: "push", collection, nonce, what });
    }

    pub(super) fn describe(&self, machine: &Machine) -> SinkStatus {
        SinkStatus {
            id: machine.node().id.clone(),
            annotations: machine.node().annotations.clone(),
            sources: self.peers.values().cloned().collect(),
            collections: machine.collections().map(|collection| self.collection(&collection)).collect(),
            messages: self.journal.snapshot(),
        }
    }

    fn collection(&self, collection: &CollectionView<'_>) -> CollectionStatus {
        let accepted = self.accepted.get(collection.name());
        CollectionStatus {
            collection: collection.name().to_string(),
            required: collection.required(),
            version: collection.version().to_owned(),
            resources: collection.resources().len(),
            synced: collection.synced(),
            unsupported: collection.unsupported(),
            accepted_seconds_ago: accepted.map(|at| at.elapsed().as_secs()),
            refused: collection.refused().map(|(version, rejection)| Refusal {
                version: version.to_owned(),
                reason: rejection.to_string(),
            }),
        }
    }
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TestJournal
    #[test]
    fn the_journal_keeps_the_order_and_the_last_32() {
        let mut observed = Observed::default();
        for nonce in 0..40 {
            let push = Resources { nonce: nonce.to_string(), ..Resources::default() };
            observed.received(1, &push);
        }
        let copy = observed.journal.snapshot();
        let nonces: Vec<_> = copy.iter().map(|entry| entry.nonce.clone()).collect();
        assert_eq!(nonces, (8..40).map(|nonce| nonce.to_string()).collect::<Vec<_>>());
        observed.received(1, &Resources::default());
        assert_eq!(copy.last().map(|entry| &*entry.nonce), Some("39"), "a copy does not move");
    }
}
