//! The status of a sink.

use std::{collections::BTreeMap, sync::Arc};

use prost::Message as _;
use tonic::Status;

use super::{collection::SinkCollection, health::is_error, machine::SinkMachine, stream::StreamId};
use crate::{
    proto::istio::mcp::v1alpha1::{RequestResources, Resources},
    stream::metrics::{Client, SINK},
};
use mixer_adapter_config::{
    MAX_NAME,
    source::{CollectionStatus, Journal, Message, RefusedVersion, SourceStatus, unix_time},
    truncate,
};

/// The observable state of a sink.
#[derive(Debug, Default)]
pub(super) struct Observed {
    journal: Journal,
    peers: BTreeMap<StreamId, (String, Client)>,
    accepted: BTreeMap<Arc<str>, tokio::time::Instant>,
}

impl Observed {
    pub(super) fn opened(&mut self, id: StreamId, peer: String) {
        self.peers.insert(id, (peer, SINK.opened()));
    }

    pub(super) fn closed(&mut self, id: StreamId, status: Option<&Status>) {
        self.peers.remove(&id);
        if let Some(status) = status.filter(|status| is_error(status)) {
            SINK.not_received(status.code());
        }
    }

    pub(super) fn peer(&self, id: StreamId) -> &str {
        self.peers.get(&id).map_or("", |(peer, _)| peer.as_str())
    }

    pub(super) fn accepted(&mut self, collection: &Arc<str>) {
        self.accepted.insert(collection.clone(), tokio::time::Instant::now());
    }

    pub(super) fn sent(&mut self, stream: StreamId, request: &RequestResources) {
        let (kind, what) = match &request.error_detail {
            Some(error) => {
                SINK.nacked(&request.collection, error.code);
                ("nack", error.message.clone())
            }
            None if request.response_nonce.is_empty() => ("ask", String::new()),
            None => {
                SINK.acked(&request.collection);
                ("ack", String::new())
            }
        };
        let (collection, nonce) = (request.collection.clone(), request.response_nonce.clone());
        self.journal.record(Message { time: unix_time(), stream, kind, collection, nonce, what });
    }

    pub(super) fn received(&mut self, stream: StreamId, push: &Resources) {
        SINK.received(&push.collection, push.encoded_len());
        let removed = push.removed_resources.len();
        let what = if push.incremental {
            format!("{} changed, {removed} removed", push.resources.len())
        } else {
            format!("{} in all", push.resources.len())
        };
        let (collection, nonce) = (push.collection.clone(), push.nonce.clone());
        self.journal.record(Message { time: unix_time(), stream, kind: "push", collection, nonce, what });
    }

    pub(super) fn describe(&self, machine: &SinkMachine) -> SourceStatus {
        SourceStatus {
            source: String::new(),
            id: machine.node.id.clone(),
            annotations: machine.node.annotations.clone(),
            peers: self.peers.values().map(|(peer, _)| peer.clone()).collect(),
            collections: machine.collections().map(|collection| self.collection(collection)).collect(),
            messages: self.journal.snapshot(),
            last_error: None,
        }
    }

    fn collection(&self, collection: &SinkCollection) -> CollectionStatus {
        let accepted = self.accepted.get(collection.name());
        CollectionStatus {
            collection: collection.name().to_string(),
            required: collection.required(),
            version: truncate(collection.version(), MAX_NAME),
            resources: collection.resources().len(),
            pending: collection.pending().map(|version| truncate(version, MAX_NAME)),
            synced: collection.synced(),
            unsupported: collection.unsupported(),
            accepted_seconds_ago: accepted.map(|at| at.elapsed().as_secs()),
            refused: collection.refused().map(|(version, nack)| RefusedVersion {
                version: truncate(version, MAX_NAME),
                reason: nack.to_string(),
            }),
        }
    }
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
        let nonces: Vec<_> = copy.iter().map(|message| message.nonce.clone()).collect();
        assert_eq!(nonces, (8..40).map(|nonce| nonce.to_string()).collect::<Vec<_>>());
        observed.received(1, &Resources::default());
        assert_eq!(copy.last().map(|message| &*message.nonce), Some("39"), "a copy does not move");
    }
}
