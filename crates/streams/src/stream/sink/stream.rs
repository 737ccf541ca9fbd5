use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use tonic::Status;

use super::{SinkOptions, held::Held};
use crate::proto::istio::mcp::v1alpha1::RequestResources;
use mixer_adapter_net::{Bucket, Rate};

/// Identifies a stream; chosen by the caller, never reused.
pub type StreamId = u64;

/// The number of pushes of one stream that may wait for their answers.
const UNANSWERED: usize = 128;

/// The rate of answers to repeated pushes, per collection and stream: equal to the held state, or refused like the previous push. It
/// slows down a source that repeats a push.
const IDLE_REPLIES: Rate = Rate { burst: 10, every: Duration::from_secs(5) };

/// The state of one stream, and the requests that are still to be sent on it. It ends with the stream, and its nonces
/// with it.
#[derive(Debug)]
pub(super) struct Stream {
    requests: Bucket,
    idle: BTreeMap<String, Bucket>,
    /// The pushes whose answers were not sent, in the order of arrival.
    answers: VecDeque<Answer>,
    unsent: Vec<QueuedRequest>,
    bases: BTreeMap<Arc<str>, Base>,
    resync: Option<(Duration, Instant)>,
    /// Whether a push on it was accepted.
    pub(super) good: bool,
    /// The status to end the stream with; `Some(None)` once it was returned.
    ending: Option<Option<Status>>,
}

/// The state from which a source computes increments of a collection.
#[derive(Clone, Debug)]
pub(super) enum Base {
    /// The sink has sent no versions.
    Nothing,
    /// This state.
    State(Held),
    /// Either of several states.
    Unsure,
}

/// The answer to a push.
#[derive(Debug)]
struct Answer {
    collection: String,
    nonce: String,
    /// The answer and when it is sent; `None` while the push is being decided on.
    ready: Option<(Instant, RequestResources)>,
}

#[derive(Debug)]
struct QueuedRequest {
    collection: Arc<str>,
    at: Instant,
    request: RequestResources,
}

impl Stream {
    pub(super) fn new(options: &SinkOptions, now: Instant) -> Self {
        Self {
            requests: Bucket::new(options.requests),
            idle: BTreeMap::new(),
            answers: VecDeque::new(),
            unsent: Vec::new(),
            bases: BTreeMap::new(),
            resync: options.resync.map(|every| (every, now + every)),
            good: false,
            ending: None,
        }
    }

    /// Requests a collection, in place of a request that was not sent yet.
    pub(super) fn request(&mut self, collection: &Arc<str>, request: RequestResources, at: Instant) {
        let queued = QueuedRequest { collection: collection.clone(), at, request };
        match self.unsent.iter_mut().find(|other| other.collection == *collection) {
            Some(place) => *place = queued,
            None => self.unsent.push(queued),
        }
    }

    /// Records a push, so that answers keep the order of pushes. A push that is repeated before its answer has one
    /// answer.
    pub(super) fn received(&mut self, collection: &str, nonce: &str) {
        if self.answers.iter().any(|other| other.answers(collection, nonce)) {
            return;
        }
        if self.answers.len() == UNANSWERED {
            return self.end(Status::resource_exhausted(
                "too many pushes at a time: a source waits for the answer to one before the next",
            ));
        }
        self.answers.push_back(Answer {
            collection: collection.to_owned(),
            nonce: nonce.to_owned(),
            ready: None,
        });
    }

    /// Answers a push. If the push changed neither the held state nor the reason of its refusal, the answer is delayed
    /// to slow the source down.
    pub(super) fn answer(
        &mut self,
        collection: &str,
        request: RequestResources,
        changed: bool,
        now: Instant,
    ) {
        let nonce = request.response_nonce.as_str();
        let Some(answer) = self.answers.iter_mut().find(|other| other.answers(collection, nonce)) else {
            return;
        };
        // An answer that replaces an unsent one is counted once.
        let delayed = answer.ready.as_ref().map(|(at, _)| *at).filter(|at| *at > now);
        let at = if changed {
            now
        } else {
            delayed.unwrap_or_else(|| {
                self.idle.entry(collection.to_owned()).or_insert_with(|| Bucket::new(IDLE_REPLIES)).take(now)
            })
        };
        answer.ready = Some((at, request));
    }

    /// Returns the state that the source assumes for a collection.
    pub(super) fn base(&self, collection: &Arc<str>) -> &Base {
        self.bases.get(collection).unwrap_or(&Base::Nothing)
    }

    pub(super) fn set_base(&mut self, collection: &Arc<str>, base: Base) {
        self.bases.insert(collection.clone(), base);
    }

    /// Returns the time when everything is requested again.
    pub(super) fn resync(&self) -> Option<Instant> {
        self.resync.map(|(_, at)| at)
    }

    /// Records that everything is requested again.
    pub(super) fn resynced(&mut self, now: Instant) {
        self.resync = self.resync.map(|(every, _)| (every, now + every));
    }

    /// Ends the stream once all requests that may be sent now are sent.
    pub(super) fn end(&mut self, status: Status) {
        self.ending.get_or_insert(Some(status));
    }

    /// Returns whether it will end, or has ended.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Takes the status to end the stream with, and drops all queued requests.
    pub(super) fn over(&mut self) -> Option<Status> {
        let status = self.ending.as_mut()?.take();
        self.answers.clear();
        self.unsent.clear();
        status
    }

    /// Returns the next request to send now.
    pub(super) fn next(&mut self, now: Instant) -> Option<RequestResources> {
        if self.requests.wait(now).is_some() {
            return None;
        }
        let answer = self
            .answers
            .pop_front_if(|answer| answer.at().is_some_and(|at| at <= now))
            .and_then(|answer| answer.ready);
        let request = match answer {
            Some((_, request)) => request,
            None => {
                let index =
                    self.unsent.iter().position(|queued| queued.at <= now && self.may_send(queued))?;
                self.unsent.remove(index).request
            }
        };
        self.requests.take(now);
        Some(request)
    }

    /// Returns the time when a request is due, if there is one.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let answer = self.answers.front().and_then(Answer::at);
        let unsent = self.unsent.iter().filter(|queued| self.may_send(queued));
        let first = unsent.map(|queued| queued.at).chain(answer).min()?;
        Some(self.requests.wait(now).map_or(first, |earliest| first.max(earliest)))
    }

    /// Returns whether a request can be sent: it follows the answers, because a source takes it for the answer to an
    /// unanswered push.
    fn may_send(&self, queued: &QueuedRequest) -> bool {
        self.answers.iter().all(|answer| answer.collection != *queued.collection)
    }
}

impl Answer {
    fn answers(&self, collection: &str, nonce: &str) -> bool {
        self.collection == collection && self.nonce == nonce
    }

    /// Returns the time when it is sent; `None` while it is unknown.
    fn at(&self) -> Option<Instant> {
        self.ready.as_ref().map(|(at, _)| *at)
    }
}
