use std::{collections::BTreeMap, sync::Arc, time::Instant};

use tonic::Status;

use super::SinkOptions;
use crate::{
    config::mcp::rate::{Bucket, Rate},
    proto::istio::mcp::v1alpha1::RequestResources,
};

/// What the sink knows of one stream, and what it still has to say on it. It dies with the stream, nonces included.
#[derive(Debug)]
pub(super) struct Stream {
    requests: Bucket,
    idle_rate: Rate,
    idle: BTreeMap<Arc<str>, Bucket>,
    outbox: Vec<Message>,
    bases: BTreeMap<Arc<str>, u64>,
    good: bool,
    ending: Option<Status>,
}

#[derive(Debug)]
struct Message {
    collection: Arc<str>,
    at: Instant,
    request: RequestResources,
}

impl Stream {
    pub(super) fn new(options: &SinkOptions) -> Self {
        Self {
            requests: Bucket::new(options.requests),
            idle_rate: options.idle_replies,
            idle: BTreeMap::new(),
            outbox: Vec::new(),
            bases: BTreeMap::new(),
            good: false,
            ending: None,
        }
    }

    /// Says something about a collection, in the place of what was not said about it yet.
    pub(super) fn say(&mut self, collection: &Arc<str>, request: RequestResources, at: Instant) {
        match self.outbox.iter_mut().find(|message| message.collection == *collection) {
            Some(message) => *message = Message { collection: collection.clone(), at, request },
            None => self.outbox.push(Message { collection: collection.clone(), at, request }),
        }
    }

    /// Answers a push that changed nothing. A source that answers such an answer with the same push again is slowed down.
    pub(super) fn say_idle(&mut self, collection: &Arc<str>, request: RequestResources, now: Instant) {
        let bucket = self.idle.entry(collection.clone()).or_insert_with(|| Bucket::new(self.idle_rate));
        // Of what replaces an answer that still waits, only one is counted: it will be sent once.
        let waits = self.outbox.iter().find(|message| message.collection == *collection && message.at > now);
        let at = waits.map(|message| message.at);
        let at = at.unwrap_or_else(|| bucket.take(now));
        self.say(collection, request, at);
    }

    /// The generation of a collection that the source knows the sink to have.
    pub(super) fn base(&self, collection: &Arc<str>) -> Option<u64> {
        self.bases.get(collection).copied()
    }

    pub(super) fn set_base(&mut self, collection: &Arc<str>, generation: u64) {
        self.bases.insert(collection.clone(), generation);
    }

    /// A push on it was accepted.
    pub(super) fn set_good(&mut self) {
        self.good = true;
    }

    pub(super) fn good(&self) -> bool {
        self.good
    }

    /// Ends it once everything that can be said now is said.
    pub(super) fn end(&mut self, status: Status) {
        self.ending.get_or_insert(status);
    }

    pub(super) fn ending(&self) -> Option<&Status> {
        self.ending.as_ref()
    }

    /// What to send now.
    pub(super) fn next(&mut self, now: Instant) -> Option<RequestResources> {
        if self.requests.wait(now).is_some() {
            return None;
        }
        let due = self.outbox.iter().position(|message| message.at <= now)?;
        self.requests.take(now);
        Some(self.outbox.remove(due).request)
    }

    /// When there is something to send, if there is.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let first = self.outbox.iter().map(|message| message.at).min()?;
        Some(self.requests.wait(now).map_or(first, |earliest| first.max(earliest)))
    }
}
