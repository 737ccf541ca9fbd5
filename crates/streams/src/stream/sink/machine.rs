use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use prost::Message as _;
use tonic::{Code, Status};

use super::{
    Mode, SinkOptions,
    collection::{Origin, Proposal, ProposalId, SinkCollection},
    held::Difference,
    request::{is_unsupported, nack_request, request},
    stream::{Base, Stream, StreamId},
};
use crate::{
    proto::istio::mcp::v1alpha1::{RequestResources, Resources, SinkNode},
    stream::{name, raw_change::RawChange, raw_resource::RawResource},
};
use mixer_adapter_config::join_texts;

/// The longest request in bytes: sources take up to 1 MiB (docs/behaviour/mcp.md#limits-of-a-source).
const LONGEST_REQUEST: usize = 1 << 20;

/// The longest nonce and the longest version of a push in bytes: both are held until it is answered.
const MAX_NONCE: usize = 4 << 10;

/// The interval at which one unsupported collection is requested again.
const RETRY_UNSUPPORTED: Duration = Duration::from_secs(600);

/// An action for the driver of a [`SinkMachine`].
#[derive(Debug)]
pub enum Output {
    /// Send the request on the stream.
    Send(StreamId, RequestResources),
    /// End the stream with that status, and pass it to [`SinkMachine::closed`].
    End(StreamId, Status),
    /// Offer the change to the application, and pass its decisions to [`SinkMachine::decided`] with the proposal's id. At most one
    /// change of a collection is undecided at a time.
    Decide(ProposalId, RawChange),
    /// For information: the pushed state of a collection is in use.
    Accepted {
        /// The collection.
        collection: Arc<str>,
        /// Whether the state is new; an empty state is new once.
        news: bool,
    },
}

/// Outcome of a closed stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Whether a push on it was accepted.
    pub good: bool,
    /// The collection that the source does not serve, for which it ended the stream. The next streams do not request
    /// it.
    pub unsupported: Option<Arc<str>>,
}

/// The protocol of a sink, for all its streams and collections, without I/O.
///
/// Messages, decisions and the time go in; requests and changes come out. Either side may have opened a connection;
/// several sources may be connected, as with the sinks of Istio.
///
/// The held state outlives streams; nonces end with them.
#[derive(Debug, Default)]
pub struct SinkMachine {
    pub(super) options: SinkOptions,
    pub(super) node: SinkNode,
    pub(super) collections: BTreeMap<Arc<str>, SinkCollection>,
    pub(super) streams: BTreeMap<StreamId, Stream>,
    pub(super) outputs: VecDeque<Output>,
    probed: Option<Instant>,
}

impl SinkMachine {
    /// Creates a sink without state and streams.
    pub fn new(options: SinkOptions) -> Self {
        let node = SinkNode { id: options.id.clone(), annotations: options.annotations.clone() };
        let collections = options.collections.iter().map(|wanted| {
            let name: Arc<str> = wanted.collection.as_str().into();
            (name.clone(), SinkCollection::new(name, wanted.required))
        });
        Self { node, collections: collections.collect(), options, ..Self::default() }
    }

    /// Offers the application the cached state of a collection. Only before the first stream.
    pub fn restore(&mut self, collection: &str, version: String, resources: Vec<Arc<RawResource>>) {
        let Some(collection) = self.collections.get(collection) else { return };
        let name = collection.name.clone();
        let difference = Difference { changed: resources, removed: Vec::new() };
        self.propose(&name, Proposal { origin: Origin::Sink, version, difference });
    }

    /// Handles a stream that opened: requests all collections, in the order of their names.
    pub fn opened(&mut self, id: StreamId, now: Instant) {
        let mut stream = Stream::new(&self.options, now);
        for (name, collection) in self.collections.iter().filter(|(_, c)| c.unsupported.is_none()) {
            let mut request = request(&self.node, name);
            if matches!(self.options.mode, Mode::Resume | Mode::Delta) && !collection.offered.is_empty() {
                let versions = collection.offered.versions();
                let resume = RequestResources {
                    incremental: true,
                    initial_resource_versions: versions,
                    ..request.clone()
                };
                // Galley reads no longer requests; requesting the whole collection avoids them.
                if resume.encoded_len() <= LONGEST_REQUEST {
                    request = resume;
                    stream.set_base(name, Base::State(collection.offered.clone()));
                }
            }
            stream.request(name, request, now);
        }
        self.streams.insert(id, stream);
    }

    /// Handles a push.
    pub fn received(&mut self, id: StreamId, push: Resources, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.is_ending()) else { return };
        if push.nonce.len().max(push.system_version_info.len()) > MAX_NONCE {
            return stream.end(Status::invalid_argument(format!(
                "the nonce or the version of a push has more than {MAX_NONCE} bytes"
            )));
        }
        stream.received(&push.collection, &push.nonce);
        let Some(collection) = self.collections.get_mut(push.collection.as_str()) else {
            // This includes the first message of a source that dials, which triggers the requests
            // (docs/behaviour/mcp.md#sources-that-dial).
            let text = format!("unsupported collection {}", push.collection);
            let refusal =
                nack_request(request(&self.node, &push.collection), push.nonce, Code::Unimplemented, &text);
            stream.answer(&push.collection, refusal, false, now);
            return;
        };
        // The source serves it now.
        collection.unsupported = None;
        collection.expiry.stop();
        for metadata in push.resources.iter().filter_map(|resource| resource.metadata.as_ref()) {
            collection.expiry.remove(&name::normal(&push.collection, &metadata.name));
        }
        if !collection.enqueue(id, push) {
            stream.end(Status::resource_exhausted(format!(
                "too many pushes of {} at a time: a source waits for the answer to one before the next",
                collection.name
            )));
        }
        let name = collection.name.clone();
        self.process(&name, now);
    }

    /// Sets the times after which resources of a collection are removed once the server is unavailable.
    pub fn renewed(&mut self, collection: &str, lifetimes: Vec<(String, Duration)>) {
        let Some(collection) = self.collections.get_mut(collection) else { return };
        collection.expiry.stop();
        lifetimes.iter().for_each(|(name, lifetime)| collection.expiry.set(name, *lifetime));
        collection.expiry.bound(|name| collection.offered.contains(name));
    }

    /// Handles the end of a stream, with that status or by this side.
    pub fn closed(&mut self, id: StreamId, status: Option<&Status>, now: Instant) -> Closed {
        let Some(stream) = self.streams.remove(&id) else { return Closed::default() };
        if self.streams.is_empty() {
            self.collections.values_mut().for_each(|collection| collection.expiry.start(now));
        }
        let unsupported = status.and_then(|status| self.unsupported(status)).map(|collection| {
            if collection.unsupported.is_none() {
                tracing::warn!(
                    collection = &*collection.name,
                    required = collection.required,
                    "the source does not serve this collection, which counts as empty; it will be requested again later"
                );
            }
            collection.unsupported = Some(now);
            collection.name.clone()
        });
        if let Some(name) = &unsupported {
            self.probed.get_or_insert(now);
            self.propose_empty(name);
        }
        Closed { good: stream.good, unsupported }
    }

    /// Returns the collection that a source does not have, by the status of a stream that it ended. A status that names several
    /// collections does not say which one.
    fn unsupported(&mut self, status: &Status) -> Option<&mut SinkCollection> {
        let mut named =
            self.collections.values_mut().filter(|collection| is_unsupported(status, &collection.name));
        let first = named.next();
        match named.next() {
            None => first,
            Some(_) => None,
        }
    }

    /// Returns the next action; `None` if nothing is due.
    pub fn poll(&mut self, now: Instant) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        self.expire(now);
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        self.probe(now);
        self.resync(now);
        for (id, stream) in &mut self.streams {
            let id = *id;
            if let Some(request) = stream.next(now) {
                return Some(Output::Send(id, request));
            }
            if let Some(status) = stream.over() {
                return Some(Output::End(id, status));
            }
        }
        None
    }

    /// Returns the time of the next [poll](Self::poll) if nothing happens before.
    pub fn wakeup(&self, now: Instant) -> Option<Instant> {
        let due = self.streams.values().filter_map(|stream| stream.due(now)).min();
        let probe = self.next_probe().filter(|_| !self.streams.is_empty());
        let resync = self.streams.values().filter_map(Stream::resync).min();
        let idle = self.collections.values().filter(|collection| !collection.is_busy());
        let expiry = idle.filter_map(|collection| collection.expiry.next()).min();
        due.into_iter().chain(probe).chain(resync).chain(expiry).min()
    }

    /// Returns the required collections without any state, from a source or a cache.
    pub fn pending(&self) -> impl Iterator<Item = &Arc<str>> {
        self.collections.values().filter(|c| c.required && c.outcome.is_none()).map(|c| &c.name)
    }

    /// Returns the state of each collection, in the order of their names.
    pub fn collections(&self) -> impl Iterator<Item = &SinkCollection> {
        self.collections.values()
    }

    /// Returns the state of a collection.
    pub fn collection(&self, name: &str) -> Option<&SinkCollection> {
        self.collections.get(name)
    }

    /// Offers an unsupported collection as empty, unless a part of it was pushed before.
    fn propose_empty(&mut self, name: &Arc<str>) {
        let is_unknown =
            |collection: &SinkCollection| collection.outcome.is_none() && collection.deciding.is_none();
        if self.collections.get(name).is_some_and(is_unknown) {
            let (version, difference) = (String::new(), Difference::default());
            self.propose(name, Proposal { origin: Origin::Sink, version, difference });
        }
    }

    /// Removes expired resources.
    fn expire(&mut self, now: Instant) {
        for collection in self.collections.values_mut().filter(|collection| !collection.is_busy()) {
            let expired = std::iter::from_fn(|| collection.expiry.pop(now));
            let held = expired.filter(|name| collection.offered.contains(name));
            let removed: Vec<_> = held.map(|name| name.to_string()).collect();
            if removed.is_empty() {
                continue;
            }
            tracing::warn!(
                collection = &*collection.name,
                resources = join_texts(&removed),
                "resources removed: the server has been away for longer than their time to live"
            );
            let version = collection.offered.version().to_owned();
            let difference = Difference { changed: Vec::new(), removed };
            let (id, change) = collection.propose(Proposal { origin: Origin::Sink, version, difference });
            self.outputs.push_back(Output::Decide(id, change));
        }
    }

    /// Returns the time when the next unsupported collection is requested again.
    fn next_probe(&self) -> Option<Instant> {
        let skipped = self.collections.values().any(|collection| collection.unsupported.is_some());
        self.probed.filter(|_| skipped).map(|probed| probed + RETRY_UNSUPPORTED)
    }

    /// Requests everything again when it is due. Increments are still based on the held state.
    fn resync(&mut self, now: Instant) {
        let requested = self.collections.values().filter(|collection| collection.unsupported.is_none());
        let requested: Vec<_> = requested.map(|collection| collection.name.clone()).collect();
        for stream in self.streams.values_mut().filter(|stream| stream.resync().is_some_and(|at| at <= now)) {
            stream.resynced(now);
            for collection in &requested {
                stream.request(collection, request(&self.node, collection), now);
            }
        }
    }

    /// Requests the collection that has been unsupported for the longest time: if it still is, the source ends the
    /// stream.
    fn probe(&mut self, now: Instant) {
        if self.streams.is_empty() || self.next_probe().is_none_or(|next| next > now) {
            return;
        }
        self.probed = Some(now);
        let skipped = self.collections.values_mut().filter(|collection| collection.unsupported.is_some());
        let Some(collection) = skipped.min_by_key(|collection| collection.unsupported) else { return };
        collection.unsupported = Some(now);
        for stream in self.streams.values_mut() {
            stream.request(&collection.name, request(&self.node, &collection.name), now);
        }
    }
}
