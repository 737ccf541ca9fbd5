use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tonic::Status;

use super::SinkOptions;
use crate::{
    mcp::rate::{Bucket, Rate},
    proto::istio::mcp::v1alpha1::RequestResources,
};

/// What the sink knows of one stream, and what it still has to say on it. It dies with the stream, nonces included.
#[derive(Debug)]
pub(super) struct Stream {
    requests: Bucket,
    idle_rate: Rate,
    idle: BTreeMap<Arc<str>, Bucket>,
    outbox: Vec<Message>,
    bases: BTreeMap<Arc<str>, Base>,
    resync: Option<(Duration, Instant)>,
    good: bool,
    /// The status to end the stream with; `Some(None)` once it was returned.
    ending: Option<Option<Status>>,
}

/// What a source thinks the sink has of a collection: what it computes increments from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The sink has sent no versions.
    Nothing,
    /// What was held at that generation.
    Generation(u64),
    /// Either of several things.
    Unsure,
}

#[derive(Debug)]
struct Message {
    collection: Arc<str>,
    at: Instant,
    request: RequestResources,
}

impl Stream {
    pub(super) fn new(options: &SinkOptions, now: Instant) -> Self {
        Self {
            requests: Bucket::new(options.requests),
            idle_rate: options.idle_replies,
            idle: BTreeMap::new(),
            outbox: Vec::new(),
            bases: BTreeMap::new(),
            resync: options.resync.map(|every| (every, now + every)),
            good: false,
            ending: None,
        }
    }

    /// Says something about a collection: an answer in the place of one that was not sent yet, or a question.
    pub(super) fn enqueue_request(&mut self, collection: &Arc<str>, request: RequestResources, at: Instant) {
        let message = Message { collection: collection.clone(), at, request };
        match self.outbox.iter_mut().find(|other| other.replaces(&message)) {
            Some(place) => *place = message,
            None => self.outbox.push(message),
        }
    }

    /// Answers a push that changed nothing. A source that answers such an answer with the same push again is slowed down.
    pub(super) fn enqueue_idle(&mut self, collection: &Arc<str>, request: RequestResources, now: Instant) {
        let bucket = self.idle.entry(collection.clone()).or_insert_with(|| Bucket::new(self.idle_rate));
        // Of what replaces something that still waits, only one is counted: it will be sent once.
        let message = Message { collection: collection.clone(), at: now, request };
        let waits = self.outbox.iter().find(|other| other.replaces(&message) && other.at > now);
        let at = waits.map_or_else(|| bucket.take(now), |message| message.at);
        self.enqueue_request(collection, message.request, at);
    }

    /// What the source thinks the sink has of a collection.
    pub(super) fn base(&self, collection: &Arc<str>) -> Base {
        self.bases.get(collection).copied().unwrap_or(Base::Nothing)
    }

    pub(super) fn set_base(&mut self, collection: &Arc<str>, base: Base) {
        self.bases.insert(collection.clone(), base);
    }

    /// When everything is to be asked for again.
    pub(super) fn resync(&self) -> Option<Instant> {
        self.resync.map(|(_, at)| at)
    }

    /// Everything is asked for again.
    pub(super) fn resynced(&mut self, now: Instant) {
        self.resync = self.resync.map(|(every, _)| (every, now + every));
    }

    /// A push on it was accepted.
    pub(super) fn mark_accepted(&mut self) {
        self.good = true;
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.good
    }

    /// Ends the stream once all requests that may be sent now are sent.
    pub(super) fn end(&mut self, status: Status) {
        self.ending.get_or_insert(Some(status));
    }

    /// Whether it is to end, or has.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Takes the status to end the stream with, and drops all queued requests.
    pub(super) fn over(&mut self) -> Option<Status> {
        let status = self.ending.as_mut()?.take();
        self.outbox.clear();
        status
    }

    /// What to send now.
    pub(super) fn next(&mut self, now: Instant) -> Option<RequestResources> {
        if self.requests.wait(now).is_some() {
            return None;
        }
        let due =
            (0..self.outbox.len()).find(|index| self.may_go(*index) && self.outbox[*index].at <= now)?;
        self.requests.take(now);
        Some(self.outbox.remove(due).request)
    }

    /// When there is something to send, if there is.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let may_go = (0..self.outbox.len()).filter(|index| self.may_go(*index));
        let first = may_go.map(|index| self.outbox[index].at).min()?;
        Some(self.requests.wait(now).map_or(first, |earliest| first.max(earliest)))
    }

    /// A question goes after the answer: while a push is under way it would be taken for the answer.
    fn may_go(&self, index: usize) -> bool {
        let message = &self.outbox[index];
        let answer = |other: &&Message| other.is_answer() && other.collection == message.collection;
        message.is_answer() || self.outbox.iter().find(answer).is_none()
    }
}

impl Message {
    fn is_answer(&self) -> bool {
        !self.request.response_nonce.is_empty() || self.request.error_detail.is_some()
    }

    fn replaces(&self, other: &Self) -> bool {
        self.collection == other.collection && self.is_answer() == other.is_answer()
    }
}
