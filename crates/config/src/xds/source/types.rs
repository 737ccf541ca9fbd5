use std::sync::Arc;

use tonic::Status;

use super::{
    order::{Rank, Traits, traits},
    watch::{Content, Representation, Watch},
};
use crate::stream::{
    collection_of,
    source::{Catalogue, NodeView, Snapshot, View},
};

/// How many types a client may ask for on one stream.
const TYPES: usize = 100;

/// The types a client asked for on one stream, in the order they go out: make before break (docs/behaviour/xds.md#rule-8-order).
#[derive(Debug)]
pub(super) struct Types {
    form: fn(Traits) -> Representation,
    nonces: u64,
    types: Vec<Type>,
    /// What the client says of itself.
    node: NodeView,
}

#[derive(Debug)]
pub(super) struct Type {
    pub(super) url: Arc<str>,
    collection: String,
    traits: Traits,
    /// What the client may see of it now.
    view: Option<Arc<View>>,
    pub(super) watch: Watch,
    /// Whether what refers to it was pushed since it was, so that the client may wait to hear of it again (rule 9).
    pub(super) warms: bool,
}

/// A push of a type.
#[derive(Debug)]
pub(super) struct Push {
    pub(super) url: Arc<str>,
    pub(super) nonce: String,
    pub(super) content: Content,
}

/// What can be tried next: the type at that place, with or without removals.
#[derive(Clone, Copy)]
struct Due {
    place: usize,
    withhold: bool,
}

impl Types {
    pub(super) fn new(form: fn(Traits) -> Representation) -> Self {
        Self { form, nonces: 0, types: Vec::new(), node: NodeView::default() }
    }

    /// The client says this of itself from now on.
    pub(super) fn set_node(&mut self, node: NodeView) {
        if self.node != node {
            self.node = node;
            self.types.iter_mut().for_each(|known| known.view = None);
        }
    }

    pub(super) fn get(&mut self, url: &str) -> Option<&mut Type> {
        self.types.iter_mut().find(|known| &*known.url == url)
    }

    /// A type that was not asked for before on this stream.
    pub(super) fn open(&mut self, url: &str, watch: Watch) -> Result<(), Status> {
        if self.types.len() == TYPES {
            return Err(Status::resource_exhausted(format!("at most {TYPES} types are served on a stream")));
        }
        let traits = traits(url);
        let place = self.types.partition_point(|other| other.traits.rank <= traits.rank);
        let collection = collection_of(url);
        collection.log_if_unknown();
        let collection = collection.as_str().to_owned();
        self.types
            .insert(place, Type { url: url.into(), collection, traits, view: None, watch, warms: false });
        Ok(())
    }

    /// The version of a type that was pushed last.
    pub(super) fn version(&mut self, url: &str) -> Option<String> {
        self.get(url)?.watch.version().cloned()
    }

    pub(super) fn is_due(&mut self, catalogue: &Catalogue) -> bool {
        self.look(catalogue);
        self.due().is_some()
    }

    /// Looks at what the client may see of each type. What did not change since is looked at by its address.
    fn look(&mut self, catalogue: &Catalogue) {
        for Type { collection, view, .. } in &mut self.types {
            *view = catalogue.seen_by(collection, &self.node, view.as_ref());
        }
    }

    /// The next push.
    pub(super) fn next(&mut self, catalogue: &Catalogue) -> Option<Push> {
        self.look(catalogue);
        while let Some(Due { place, withhold }) = self.due() {
            let due = &mut self.types[place];
            let state = due.view.as_ref()?.state();
            let nonce = (self.nonces + 1).to_string();
            if let Some(content) = due.watch.next(state, (self.form)(due.traits), withhold, &nonce) {
                self.nonces += 1;
                let url = due.url.clone();
                due.warms = false;
                if due.traits.rank == Rank::Cluster {
                    let endpoints = self.types.iter_mut().filter(|other| other.traits.rank == Rank::Endpoint);
                    endpoints.for_each(|other| other.warms = true);
                }
                return Some(Push { url, nonce, content });
            }
        }
        None
    }

    fn due(&self) -> Option<Due> {
        let withhold = |rank: Rank| rank.is_referred_to() && !self.is_settled();
        let mut waits = false;
        for (place, known) in self.types.iter().enumerate() {
            let Type { traits, watch, .. } = known;
            if !known.state().is_some_and(|state| watch.has_news(state)) {
                continue;
            }
            // What is asked for may be what others wait for, and does not wait itself.
            if watch.is_pending() || (waits && traits.rank.is_ordered() && !watch.is_asked()) {
                waits |= traits.rank.is_ordered();
                continue;
            }
            return Some(Due { place, withhold: withhold(traits.rank) });
        }
        let withheld = |known: &Type| known.watch.withholds() && !withhold(known.traits.rank);
        self.types.iter().position(withheld).map(|place| Due { place, withhold: false })
    }

    /// Whether the client accepted all that refers to clusters.
    fn is_settled(&self) -> bool {
        let mut referring = self.types.iter().filter(|known| known.traits.rank.refers());
        referring.all(|known| known.watch.is_settled(known.state()))
    }
}

impl Type {
    fn state(&self) -> Option<&Snapshot> {
        self.view.as_ref().map(|view| &**view.state())
    }
}
