use std::{collections::BTreeMap, time::Instant};

use prost::Message;
use tonic::Status;

use super::{
    name_set::{Name, name_of},
    node::sink_id,
    order::Traits,
    subscription::{Owed, Subscription},
    types::{Push, Types},
    watch::{Nonce, Representation, Watch},
};
use crate::{
    proto::envoy::config::core::v3::Node,
    stream::{
        name,
        shorthand::Summarize,
        source::{
            catalogue::Catalogue,
            dialogue::{Dialogue, Event, Meaning},
            pushed::Pushed,
            selector::NodeView,
        },
        type_url::collection_of,
    },
    xds::{READS_WRAPPER, SUPPORTS_TTL},
};
use mixer_adapter_core::proto;

/// The part of the name by which clients of gRPC identify themselves, such as `gRPC Go`.
const GRPC: &str = "gRPC";

/// One stream of xDS with the requests and responses of its variant.
#[derive(Debug)]
pub struct DiscoveryStream<Q, P> {
    /// The only type of the stream; `None` for all types.
    only: Option<String>,
    /// Whether the client requests all resources explicitly. Only the first request has to name the client
    /// (docs/behaviour/xds.md#rule-1-node).
    explicit: bool,
    types: Types,
    variant: StreamVariant<Q, P>,
}

/// What differs between the variants of a stream.
#[derive(Debug)]
pub(super) struct StreamVariant<Q, P> {
    pub(super) representation: fn(Traits) -> Representation,
    /// Whether resources have a wrapper on it that only some clients read.
    pub(super) wraps: bool,
    pub(super) read: fn(Q) -> Request,
    /// Makes the message of a push; the flag says whether resources have a time to live.
    pub(super) write: fn(Push, bool) -> Pushed<P>,
}

/// A request on the stream.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) type_url: String,
    pub(super) node: Option<Node>,
    pub(super) nonce: String,
    pub(super) error: Option<proto::Status>,
    pub(super) names: Names,
}

/// The names that a request subscribes to.
#[derive(Debug)]
pub(super) enum Names<N = String> {
    /// State of the world: replaces the names.
    Replace(Vec<N>),
    /// Incremental: adds some names, and removes others.
    Change {
        subscribe: Vec<N>,
        unsubscribe: Vec<N>,
        /// The client's versions from before the stream.
        versions: BTreeMap<String, String>,
    },
}

impl Names {
    /// Returns the names in the normal form of stored resources of that type, and with the texts of those in the catalogue.
    fn normal(self, type_url: &str, catalogue: Option<&Catalogue>) -> Names<Name> {
        let collection = collection_of(type_url);
        let state = catalogue.and_then(|catalogue| catalogue.snapshot(collection.as_str()));
        let entries = state.map(|state| state.entries());
        let normal = |names: Vec<String>| {
            names
                .into_iter()
                .map(|name| name_of(&name::normal(collection.as_str(), &name), entries))
                .collect()
        };
        match self {
            Self::Replace(names) => Names::Replace(normal(names)),
            Self::Change { subscribe, unsubscribe, versions } => Names::Change {
                subscribe: normal(subscribe),
                unsubscribe: normal(unsubscribe),
                versions: name::normal_versions(collection.as_str(), versions),
            },
        }
    }
}

impl<Q, P: Message> DiscoveryStream<Q, P> {
    /// Creates a stream that has just opened: of all types, or of one.
    pub(super) fn over(only: Option<&str>, variant: StreamVariant<Q, P>) -> Self {
        let (only, types) = (only.map(str::to_owned), Types::new(variant.representation));
        Self { only, explicit: false, types, variant }
    }

    /// Handles a request. An error ends the stream.
    pub fn requested(&mut self, request: Q) -> Result<Meaning, Status> {
        self.handle(request, None).map(|event| event.meaning)
    }

    /// Returns the time of the next call of [`elapsed`](Self::elapsed): resources with a time to live are renewed by
    /// heartbeats.
    pub fn wakeup(&self) -> Option<Instant> {
        self.types.wakeup()
    }

    /// Handles the passing of that time.
    pub fn elapsed(&mut self, now: Instant) {
        self.types.elapsed(now);
    }

    /// Returns the next push, if one is due.
    pub fn next(&mut self, catalogue: &Catalogue) -> Option<P> {
        self.next_push(catalogue)?.into_message().ok()
    }

    fn next_push(&mut self, catalogue: &Catalogue) -> Option<Pushed<P>> {
        let push = self.types.next(catalogue)?;
        Some((self.variant.write)(push, self.types.ttl))
    }

    /// Returns the type of a request.
    fn type_url(&self, requested: String) -> Result<String, Status> {
        match &self.only {
            Some(only) if requested.is_empty() || requested == *only => Ok(only.clone()),
            Some(only) => {
                Err(Status::invalid_argument(format!("this stream serves {only} alone, not {requested}")))
            }
            None if requested.is_empty() => {
                Err(Status::invalid_argument("a request on a stream of all types needs a type_url"))
            }
            None => Ok(requested),
        }
    }

    /// Handles a request. Names of resources in the catalogue share their texts with it.
    fn handle(&mut self, request: Q, catalogue: Option<&Catalogue>) -> Result<Event, Status> {
        let request = (self.variant.read)(request);
        let url = self.type_url(request.type_url)?;
        let sink = request.node.as_ref().map(sink_id);
        if let Some(node) = &request.node {
            let ttl = has(node, &[SUPPORTS_TTL]) && (!self.variant.wraps || has(node, &READS_WRAPPER));
            self.explicit = node.user_agent_name.starts_with(GRPC);
            self.types.set_node(NodeView::of(node), ttl);
        }
        let names = request.names.normal(&url, catalogue);
        let meaning = match self.types.get(&url) {
            None => {
                // The nonce is ignored: istiod sends the time as the nonce of its first request.
                let watch = open(self.explicit, names)?;
                self.types.open(&url, watch)?;
                Meaning::Requested
            }
            Some(known) => {
                let (watch, warms) = (&mut known.watch, known.warms);
                let nonce = watch.nonce(&request.nonce);
                match names {
                    Names::Replace(_) if nonce == Nonce::Stale => Meaning::Stale,
                    Names::Replace(names) => {
                        let mut owed = watch.subscription().replace(&names)?;
                        // A request that answers no push is for all resources, unless these are being sent.
                        if (nonce == Nonce::None && !watch.is_pending()) || (nonce != Nonce::None && warms) {
                            owed = Owed::all();
                        }
                        watch.answered(nonce, owed, request.error)
                    }
                    // The subscription changes whichever push this answers (rule 7).
                    Names::Change { subscribe, unsubscribe, .. } => {
                        let mut owed = watch.subscription().add(&subscribe, false)?;
                        owed.names.extend(watch.subscription().remove(&unsubscribe));
                        watch.answered(nonce, owed, request.error)
                    }
                }
            }
        };
        Ok(Event { sink, meaning, sent: self.types.version(&url), collection: url })
    }
}

/// Returns whether a client supports any of these features.
fn has(node: &Node, features: &[&str]) -> bool {
    node.client_features.iter().any(|feature| features.contains(&feature.as_str()))
}

/// The first subscription to a type.
fn open(explicit: bool, names: Names<Name>) -> Result<Watch, Status> {
    let mut subscription = Subscription::new(explicit);
    let (owed, versions) = match names {
        Names::Replace(names) => (subscription.replace(&names)?, BTreeMap::new()),
        Names::Change { subscribe, unsubscribe, versions } => {
            let mut owed = subscription.add(&subscribe, true)?;
            owed.names.extend(subscription.remove(&unsubscribe));
            (owed, versions)
        }
    };
    Ok(Watch::new(subscription, owed, versions))
}

impl<Q: Message + Summarize + 'static, P: Message + Summarize + 'static> Dialogue for DiscoveryStream<Q, P> {
    type Request = Q;
    type Push = P;

    fn on_request(&mut self, request: Q, catalogue: &Catalogue) -> Result<Event, Status> {
        self.handle(request, Some(catalogue))
    }

    fn names_size(&self) -> usize {
        self.types.names_size()
    }

    fn wakeup(&self) -> Option<Instant> {
        self.types.wakeup()
    }

    fn elapsed(&mut self, now: Instant) {
        self.types.elapsed(now);
    }

    fn is_due(&mut self, catalogue: &Catalogue) -> bool {
        self.types.is_due(catalogue)
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<Pushed<P>> {
        self.next_push(catalogue)
    }
}
