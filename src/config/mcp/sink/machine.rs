use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use tonic::{Code, Status};

use super::{
    CollectionView, Mode, SinkOptions,
    collection::{Collection, Deciding, Origin, Refused},
    held::Difference,
    push::Push,
    request::{nack, request, unsupported_collection},
    stream::Stream,
};
use crate::{
    config::mcp::{
        Resource,
        change::{Change, Rejection, Verdict},
    },
    proto::istio::mcp::v1alpha1::{RequestResources, Resources, SinkNode},
};

/// Tells streams apart; chosen by the caller, never twice.
pub type StreamId = u64;

/// What the driver of a [`Machine`] has to do.
#[derive(Debug)]
pub enum Output {
    /// Send that on the stream.
    Send(StreamId, RequestResources),
    /// End the stream with that status. The machine has forgotten it.
    End(StreamId, Status),
    /// Ask the application, and tell [`Machine::decided`] what it said. At most one change of a collection is asked about at a
    /// time.
    Decide(Change),
    /// For information: the application has accepted the collection, and the sink holds it.
    Accepted(Arc<str>),
}

/// What a stream was good for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// A push on it was accepted.
    pub good: bool,
    /// The collection it ended for, as the source does not serve it. It is left out of the next streams.
    pub unsupported: Option<Arc<str>>,
}

/// The protocol as a sink speaks it, for all of its streams and collections: messages, verdicts and the time go in, messages
/// and changes come out. Either side may have dialed; several sources may be connected, as with the sinks of Istio.
///
/// What is held outlives streams; nonces die with them.
#[derive(Debug)]
pub struct Machine {
    options: SinkOptions,
    node: SinkNode,
    collections: BTreeMap<Arc<str>, Collection>,
    streams: BTreeMap<StreamId, Stream>,
    outputs: VecDeque<Output>,
    /// Stands for all collections that were not asked for.
    unknown: Arc<str>,
    probed: Option<Instant>,
}

impl Machine {
    /// A sink that holds nothing and is connected to nothing.
    pub fn new(options: SinkOptions) -> Self {
        let node = SinkNode { id: options.id.clone(), annotations: options.annotations.clone() };
        let collections = options.collections.iter().map(|wanted| {
            let name: Arc<str> = wanted.collection.as_str().into();
            (name.clone(), Collection::new(name, wanted.required))
        });
        Self {
            node,
            collections: collections.collect(),
            streams: BTreeMap::new(),
            outputs: VecDeque::new(),
            unknown: "".into(),
            probed: None,
            options,
        }
    }

    /// Offers the application what a cache kept of a collection. Only before the first stream.
    pub fn restore(&mut self, collection: &str, version: String, resources: Vec<Arc<Resource>>) {
        if let Some(collection) = self.collections.get_mut(collection) {
            let difference = Difference { changed: resources, removed: Vec::new() };
            let change = collection.propose(Origin::Cache, version, difference);
            self.outputs.push_back(Output::Decide(change));
        }
    }

    /// A stream opened: everything is asked for, in the order of the collections' names.
    pub fn opened(&mut self, id: StreamId, now: Instant) {
        let mut stream = Stream::new(&self.options);
        for (name, collection) in self.collections.iter().filter(|(_, c)| c.unsupported.is_none()) {
            let mut request = request(&self.node, name);
            if self.options.mode == Mode::Resume && !collection.held.is_empty() {
                request.incremental = true;
                request.initial_resource_versions = collection.held.versions();
                stream.set_base(name, collection.held.generation());
            }
            stream.say(name, request, now);
        }
        self.streams.insert(id, stream);
    }

    /// A push arrived.
    pub fn received(&mut self, id: StreamId, push: Resources, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(collection) = self.collections.get_mut(push.collection.as_str()) else {
            // Also what a source says first that has dialed: it asks to be asked (spec: mcp-and-xds.md b, source 14).
            let text = format!("unsupported collection {}", push.collection);
            let refusal = nack(request(&self.node, &push.collection), push.nonce, Code::Unimplemented, text);
            stream.say_idle(&self.unknown, refusal, now);
            return;
        };
        // The source does serve it.
        collection.unsupported = None;
        if !collection.enqueue(id, push) {
            stream.end(Status::resource_exhausted(format!(
                "too many pushes of {} at a time: a source waits for the answer to one before the next",
                collection.name
            )));
        }
        let name = collection.name.clone();
        self.process(&name, now);
    }

    /// The application has decided on the change of a collection it was asked about.
    pub fn decided(&mut self, collection: &str, verdict: Verdict, now: Instant) {
        let Some(collection) = self.collections.get_mut(collection) else { return };
        let name = collection.name.clone();
        let Some(mut deciding) = collection.deciding.take() else { return };
        let accepted = collection.accepted;
        match verdict {
            Ok(()) => self.accept(&name, deciding, now),
            Err(rejection) if !self.skip_bad(&mut deciding.difference, &rejection) => {
                self.refuse(&name, deciding.origin, deciding.version, rejection, now);
            }
            Err(_) if accepted && deciding.difference.is_empty() => self.accept(&name, deciding, now),
            Err(_) => self.propose(&name, deciding.origin, deciding.version, deciding.difference),
        }
        self.process(&name, now);
    }

    /// A stream ended, with that status, or because of this side.
    pub fn closed(&mut self, id: StreamId, status: Option<&Status>, now: Instant) -> Closed {
        let Some(stream) = self.streams.remove(&id) else { return Closed::default() };
        let unsupported = status.and_then(unsupported_collection);
        let unsupported = unsupported.and_then(|name| self.collections.get_mut(name)).map(|collection| {
            if collection.unsupported.is_none() {
                tracing::warn!(
                    collection = &*collection.name,
                    required = collection.required,
                    "the source does not serve this collection; it is left out for now"
                );
            }
            collection.unsupported = Some(now);
            collection.name.clone()
        });
        if unsupported.is_some() {
            self.probed.get_or_insert(now);
        }
        Closed { good: stream.good(), unsupported }
    }

    /// The next thing to do, until there is none.
    pub fn poll(&mut self, now: Instant) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        self.probe(now);
        for (id, stream) in &mut self.streams {
            let id = *id;
            if let Some(request) = stream.next(now) {
                return Some(Output::Send(id, request));
            }
            if let Some(status) = stream.ending().cloned() {
                self.streams.remove(&id);
                return Some(Output::End(id, status));
            }
        }
        None
    }

    /// When to [poll](Self::poll) again if nothing happens before.
    pub fn wakeup(&self, now: Instant) -> Option<Instant> {
        let due = self.streams.values().filter_map(|stream| stream.due(now)).min();
        let probe = self.next_probe().filter(|_| !self.streams.is_empty());
        due.into_iter().chain(probe).min()
    }

    /// The required collections that nothing was accepted of yet, neither from a source nor from a cache.
    pub fn pending(&self) -> impl Iterator<Item = &Arc<str>> {
        self.collections.values().filter(|c| c.required && !c.accepted).map(|c| &c.name)
    }

    /// What is known of each collection, in the order of their names.
    pub fn collections(&self) -> impl Iterator<Item = CollectionView<'_>> {
        self.collections.values().map(CollectionView)
    }

    /// What is known of a collection.
    pub fn collection(&self, name: &str) -> Option<CollectionView<'_>> {
        self.collections.get(name).map(CollectionView)
    }

    /// Looks at the pushes that wait, up to the first that the application has to decide on.
    fn process(&mut self, name: &Arc<str>, now: Instant) {
        while let Some((id, push)) = self.collections.get_mut(name).and_then(Collection::next) {
            self.look_at(name, id, Push::read(push), now);
        }
    }

    fn look_at(&mut self, name: &Arc<str>, id: StreamId, mut push: Push, now: Instant) {
        let Some(collection) = self.collections.get(name) else { return };
        let origin = Origin::Push { stream: id, nonce: push.nonce.clone() };
        let version = push.version.clone();
        if !push.faults.is_empty() {
            let rejection = Rejection { faults: std::mem::take(&mut push.faults) };
            if !self.options.skip_bad_resources {
                return self.refuse(name, origin, version, rejection, now);
            }
            tracing::warn!(collection = &**name, version, %rejection, "bad resources are left out");
        }
        let incremental = push.incremental;
        let difference = collection.held.compare(push);
        if incremental && !self.is_based(collection, id, &difference) {
            let text = "the push is incremental, but not based on what the sink has";
            self.refuse(name, origin, version, Rejection::whole(text), now);
            // The next stream begins with the whole state; on this one it would come only when the version moves.
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.end(Status::failed_precondition(format!("{name}: {text}")));
            }
        } else if difference.is_empty() && collection.accepted {
            self.accept(name, Deciding { origin, version, difference }, now);
        } else {
            self.propose(name, origin, version, difference);
        }
    }

    /// Whether increments on a stream start from what is held. They do also when another source has pushed the same before, and
    /// when there is nothing that could be missed.
    fn is_based(&self, collection: &Collection, id: StreamId, difference: &Difference) -> bool {
        match self.streams.get(&id).and_then(|stream| stream.base(&collection.name)) {
            Some(base) => base == collection.held.generation() || difference.is_empty(),
            None => collection.held.is_empty(),
        }
    }

    fn propose(&mut self, name: &Arc<str>, origin: Origin, version: String, difference: Difference) {
        if let Some(collection) = self.collections.get_mut(name) {
            let change = collection.propose(origin, version, difference);
            self.outputs.push_back(Output::Decide(change));
        }
    }

    fn accept(&mut self, name: &Arc<str>, deciding: Deciding, now: Instant) {
        let Some(collection) = self.collections.get_mut(name) else { return };
        let changed = !deciding.difference.is_empty();
        let answer = match &deciding.origin {
            Origin::Push { stream, nonce } => Some((*stream, nonce.clone())),
            Origin::Cache => None,
        };
        collection.accept(deciding);
        self.outputs.push_back(Output::Accepted(name.clone()));
        let generation = collection.held.generation();
        let stream = answer.and_then(|(id, nonce)| Some((self.streams.get_mut(&id)?, nonce)));
        let Some((stream, nonce)) = stream else { return };
        stream.set_good();
        stream.set_base(name, generation);
        let ack = RequestResources {
            response_nonce: nonce,
            incremental: self.options.mode != Mode::Full,
            ..request(&self.node, name)
        };
        if changed { stream.say(name, ack, now) } else { stream.say_idle(name, ack, now) }
    }

    fn refuse(
        &mut self,
        name: &Arc<str>,
        origin: Origin,
        version: String,
        rejection: Rejection,
        now: Instant,
    ) {
        let Some(collection) = self.collections.get_mut(name) else { return };
        let text = format!("{name}: {rejection}");
        let refused = Some(Refused { version, rejection });
        // Told once, not on every retry.
        if collection.refused != refused {
            tracing::warn!(
                version = refused.as_ref().map(|r| &*r.version),
                "configuration is refused: {text}"
            );
            collection.refused = refused;
        }
        if let Origin::Push { stream, nonce } = origin
            && let Some(stream) = self.streams.get_mut(&stream)
        {
            // Without `incremental`: what comes next is to be whole.
            let refusal = nack(request(&self.node, name), nonce, Code::InvalidArgument, text);
            stream.say_idle(name, refusal, now);
        }
    }

    /// Takes what was refused out of a change, if bad resources are skipped and all that was refused are such.
    fn skip_bad(&self, difference: &mut Difference, rejection: &Rejection) -> bool {
        let part = |name: &String| {
            difference.changed.iter().any(|changed| changed.name == *name)
                || difference.removed.contains(name)
        };
        let skip = self.options.skip_bad_resources
            && !rejection.faults.is_empty()
            && rejection.faults.iter().all(|fault| part(&fault.resource));
        if skip {
            tracing::warn!(%rejection, "bad resources are left out");
            let bad = |name: &str| rejection.faults.iter().any(|fault| fault.resource == name);
            difference.changed.retain(|changed| !bad(&changed.name));
            difference.removed.retain(|removed| !bad(removed));
        }
        skip
    }

    /// When a collection that was left out is to be tried again.
    fn next_probe(&self) -> Option<Instant> {
        let left_out = self.collections.values().any(|collection| collection.unsupported.is_some());
        self.probed.filter(|_| left_out).map(|probed| probed + self.options.retry_unsupported)
    }

    /// Asks for one collection that was left out, the one left out longest: if it still is not served the stream ends for it.
    fn probe(&mut self, now: Instant) {
        if self.streams.is_empty() || self.next_probe().is_none_or(|next| next > now) {
            return;
        }
        self.probed = Some(now);
        let left_out = self.collections.values_mut().filter(|collection| collection.unsupported.is_some());
        let Some(collection) = left_out.min_by_key(|collection| collection.unsupported) else { return };
        collection.unsupported = Some(now);
        for stream in self.streams.values_mut() {
            stream.say(&collection.name, request(&self.node, &collection.name), now);
        }
    }
}
