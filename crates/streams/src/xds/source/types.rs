use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tonic::Status;

use super::{
    order::{Rank, Traits, traits},
    warming::Warming,
    watch::{Content, Representation, Watch},
};
use crate::stream::{
    metrics::SOURCE,
    source::{
        catalogue::Catalogue,
        selector::NodeView,
        snapshot::{Snapshot, views::View},
    },
    type_url::collection_of,
};

/// The number of heartbeats in the shortest time to live.
const HEARTBEATS: u32 = 3;
/// The maximum number of types that a client may request on one stream.
const TYPES: usize = 100;

/// The types that a client has requested on one stream, in the order in which they are pushed: make before break
/// (docs/behaviour/xds.md#rule-8-order).
#[derive(Debug)]
pub(super) struct Types {
    form: fn(Traits) -> Representation,
    nonces: u64,
    types: Vec<Type>,
    warming: Warming,
    /// The node of the client.
    node: NodeView,
    /// Whether it removes resources at the end of their time to live.
    pub(super) ttl: bool,
}

#[derive(Debug)]
pub(super) struct Type {
    pub(super) url: Arc<str>,
    collection: String,
    traits: Traits,
    /// The current view of the client.
    view: Option<Arc<View>>,
    /// The interval of heartbeats, if a resource has a time to live.
    interval: Option<Duration>,
    /// The time of the next heartbeat.
    heartbeat: Option<Instant>,
    /// Whether it is due.
    beats: bool,
    pub(super) watch: Watch,
    /// Whether a referring type was pushed after it, so that the client may wait for another response of it (rule 9).
    pub(super) warms: bool,
}

/// A push of a type.
#[derive(Debug)]
pub(super) struct Push {
    pub(super) url: Arc<str>,
    pub(super) nonce: String,
    pub(super) content: Content,
}

/// A candidate for the next push: the type at that index, with or without removals.
#[derive(Clone, Copy)]
struct Due {
    place: usize,
    withhold: bool,
    /// Whether it is a heartbeat.
    beats: bool,
}

impl Types {
    pub(super) fn new(form: fn(Traits) -> Representation) -> Self {
        Self {
            form,
            nonces: 0,
            types: Vec::new(),
            warming: Warming::default(),
            node: NodeView::default(),
            ttl: false,
        }
    }

    /// Sets the node of the client.
    pub(super) fn set_node(&mut self, node: NodeView, ttl: bool) {
        self.ttl = ttl;
        if self.node != node {
            self.node = node;
            self.types.iter_mut().for_each(|known| known.view = None);
        }
    }

    pub(super) fn get(&mut self, url: &str) -> Option<&mut Type> {
        self.types.iter_mut().find(|known| &*known.url == url)
    }

    /// Adds a type that was not requested before on this stream.
    pub(super) fn open(&mut self, url: &str, watch: Watch) -> Result<(), Status> {
        if self.types.len() == TYPES {
            return Err(Status::resource_exhausted(format!("at most {TYPES} types are served on a stream")));
        }
        let traits = traits(url);
        let place = self.types.partition_point(|other| other.traits.rank <= traits.rank);
        let collection = collection_of(url);
        collection.log_if_unknown();
        let collection = collection.as_str().to_owned();
        self.types.insert(
            place,
            Type {
                url: url.into(),
                collection,
                traits,
                view: None,
                interval: None,
                heartbeat: None,
                beats: false,
                watch,
                warms: false,
            },
        );
        Ok(())
    }

    /// Returns the version of a type that was pushed last.
    pub(super) fn version(&mut self, url: &str) -> Option<String> {
        self.get(url)?.watch.version().cloned()
    }

    pub(super) fn is_due(&mut self, catalogue: &Catalogue) -> bool {
        self.refresh_views(catalogue);
        self.due().is_some()
    }

    /// Updates the view of each type. States are compared by their addresses.
    fn refresh_views(&mut self, catalogue: &Catalogue) {
        for known in &mut self.types {
            let view = catalogue.seen_by(&known.collection, &self.node, known.view.as_ref());
            if self.ttl
                && !view
                    .as_ref()
                    .zip(known.view.as_ref())
                    .is_some_and(|(new, old)| Arc::ptr_eq(new.state(), old.state()))
            {
                let expiring = view.iter().flat_map(|view| view.state().expiring());
                known.interval = expiring.filter_map(|entry| entry.ttl).min().map(|ttl| ttl / HEARTBEATS);
            }
            known.view = view;
        }
    }

    /// Returns about how many bytes the names of resources take that it holds for its client.
    pub(super) fn names_size(&self) -> usize {
        self.types.iter().map(|known| known.watch.names_size()).sum()
    }

    /// Returns the time of the next heartbeat, or of the end of the wait for an answer.
    pub(super) fn wakeup(&self) -> Option<Instant> {
        let heartbeats = self.types.iter().filter(|known| !known.beats).filter_map(|known| known.heartbeat);
        heartbeats.chain(self.warming.wakeup()).min()
    }

    /// Handles the passing of that time.
    pub(super) fn elapsed(&mut self, now: Instant) {
        self.warming.elapsed(now);
        for known in &mut self.types {
            known.beats |= known.heartbeat.is_some_and(|at| at <= now);
            let next = known.heartbeat.filter(|at| *at > now);
            known.heartbeat = known.interval.map(|interval| {
                let at = now + interval;
                next.map_or(at, |next| next.min(at))
            });
        }
    }

    /// Returns the next push.
    pub(super) fn next(&mut self, catalogue: &Catalogue) -> Option<Push> {
        self.refresh_views(catalogue);
        while let Some(Due { place, withhold, beats }) = self.due() {
            let due = &mut self.types[place];
            due.beats &= !beats;
            let state = due.view.as_ref()?.state();
            let nonce = (self.nonces + 1).to_string();
            let form = (self.form)(due.traits);
            let content = match (beats, form) {
                (false, form) => due.watch.next(state, form, withhold, &nonce),
                // Only for Envoy's listeners and clusters does a response without the others delete them.
                (true, Representation::Whole) if due.traits.rank == Rank::Other => {
                    due.watch.heartbeat(state, Representation::Parts, &nonce)
                }
                (true, form) => due.watch.heartbeat(state, form, &nonce),
            };
            if let Some(content) = content {
                self.nonces += 1;
                let (url, rank) = (due.url.clone(), due.traits.rank);
                due.warms = false;
                if rank.is_referred_to()
                    && content.adds
                    && self.types.iter().any(|known| known.traits.rank.refers())
                {
                    self.warming.start();
                }
                if rank.refers() && self.warming.is_overdue() {
                    SOURCE.pushed_out_of_order();
                }
                if rank == Rank::Cluster {
                    let endpoints = self.types.iter_mut().filter(|other| other.traits.rank == Rank::Endpoint);
                    endpoints.for_each(|other| other.warms = true);
                }
                return Some(Push { url, nonce, content });
            }
        }
        None
    }

    fn due(&mut self) -> Option<Due> {
        let mut referred_to = self.types.iter().filter(|known| known.traits.rank.is_referred_to());
        if referred_to.all(Type::is_answered) {
            self.warming.finish();
        }
        let mut waits = false;
        for (place, known) in self.types.iter().enumerate() {
            let Type { traits, watch, .. } = known;
            if !known.has_news() {
                continue;
            }
            // Other types may wait for a requested one, which does not wait itself.
            let waits_for_others =
                (waits && traits.rank.is_ordered()) || (traits.rank.refers() && self.warming.is_active());
            if watch.is_pending() || (waits_for_others && !watch.is_requested()) {
                waits |= traits.rank.is_ordered();
                continue;
            }
            return Some(Due { place, withhold: self.withholds(traits.rank), beats: false });
        }
        let mut types = self.types.iter();
        if let Some(place) =
            types.position(|known| known.watch.withholds() && !self.withholds(known.traits.rank))
        {
            return Some(Due { place, withhold: false, beats: false });
        }
        let place = self.types.iter().position(|known| known.beats && !known.watch.is_pending())?;
        Some(Due { place, withhold: false, beats: true })
    }

    /// Returns whether removals of a type wait until no type refers to it.
    fn withholds(&self, rank: Rank) -> bool {
        rank.is_referred_to() && !self.is_settled()
    }

    /// Returns whether the client accepted all types that refer to clusters.
    fn is_settled(&self) -> bool {
        let mut referring = self.types.iter().filter(|known| known.traits.rank.refers());
        referring.all(|known| known.watch.is_settled(known.state()))
    }
}

impl Type {
    fn state(&self) -> Option<&Snapshot> {
        self.view.as_ref().map(|view| &**view.state())
    }

    /// Returns whether neither the client nor the server owes the other an answer.
    fn is_answered(&self) -> bool {
        let is_answering = self.watch.is_requested() && self.state().is_some();
        !self.watch.is_pending() && !is_answering
    }

    /// Returns whether a state may have to be sent.
    fn has_news(&self) -> bool {
        self.state().is_some_and(|state| self.watch.has_news(state))
    }
}
