use std::{collections::BTreeMap, time::Instant};

use tonic::Status;

use super::{
    name_set::Name,
    node::{RequestContext, sink_id},
    subscription::{Owed, Subscription},
    types::{Push, Types},
    watch::{Nonce, Representation, Watch},
};
use crate::{
    proto::envoy::config::core::v3::Node,
    stream::{
        name,
        source::{
            catalogue::Catalogue,
            dialogue::{Event, Meaning},
            selector::NodeView,
        },
        type_url::collection_of,
    },
    xds::{READS_WRAPPER, SUPPORTS_TTL},
};
use mixer_adapter_core::proto;

/// One stream of xDS, in either variant.
#[derive(Debug)]
pub(super) struct XdsStream {
    context: RequestContext,
    types: Types,
    /// Whether resources have a wrapper on it that only some clients read.
    wraps: bool,
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
pub(super) enum Names {
    /// State of the world: replaces the names.
    Replace(Vec<String>),
    /// Incremental: adds some names, and removes others.
    Change {
        subscribe: Vec<String>,
        unsubscribe: Vec<String>,
        /// The client's versions from before the stream.
        versions: BTreeMap<String, String>,
    },
}

/// Names in the normal form of stored resources.
enum NormalNames {
    Replace(Vec<Name>),
    Change { subscribe: Vec<Name>, unsubscribe: Vec<Name>, versions: BTreeMap<String, String> },
}

impl Names {
    /// Returns the names in the normal form of stored resources of that type, and with the texts of those in the catalogue.
    fn normal(self, type_url: &str, catalogue: Option<&Catalogue>) -> NormalNames {
        let collection = collection_of(type_url);
        let state = catalogue.and_then(|catalogue| catalogue.snapshot(collection.as_str()));
        let entries = state.map(|state| state.entries());
        let normal = |names: Vec<String>| {
            names
                .into_iter()
                .map(|name| Name::of(&name::normal(collection.as_str(), &name), entries))
                .collect()
        };
        match self {
            Self::Replace(names) => NormalNames::Replace(normal(names)),
            Self::Change { subscribe, unsubscribe, versions } => NormalNames::Change {
                subscribe: normal(subscribe),
                unsubscribe: normal(unsubscribe),
                versions: name::normal_versions(collection.as_str(), versions),
            },
        }
    }
}

impl XdsStream {
    /// Creates a stream of whole sets that has just opened: of all types, or of one.
    pub(super) fn sotw(only: Option<&'static str>) -> Self {
        Self {
            context: RequestContext::new(only),
            types: Types::new(
                |traits| if traits.whole { Representation::Whole } else { Representation::Parts },
            ),
            wraps: true,
        }
    }

    /// Creates a stream of changes that has just opened: of all types, or of one.
    pub(super) fn delta(only: Option<&'static str>) -> Self {
        Self {
            context: RequestContext::new(only),
            types: Types::new(|_| Representation::Changes),
            wraps: false,
        }
    }

    /// Handles a request. An error ends the stream. Names of resources in the catalogue share their texts with it.
    pub(super) fn requested(
        &mut self,
        request: Request,
        catalogue: Option<&Catalogue>,
    ) -> Result<Event, Status> {
        let url = self.context.type_url(&request.type_url, request.node.as_ref())?;
        let sink = request.node.as_ref().map(sink_id);
        if let Some(node) = &request.node {
            let has = |features: &[&str]| {
                node.client_features.iter().any(|feature| features.contains(&feature.as_str()))
            };
            let ttl = has(&[SUPPORTS_TTL]) && (!self.wraps || has(&READS_WRAPPER));
            self.types.set_node(NodeView::of(node), ttl);
        }
        let names = request.names.normal(&url, catalogue);
        let meaning = match self.types.get(&url) {
            None => {
                // The nonce is ignored: istiod sends the time as the nonce of its first request.
                let watch = open(self.context.explicit(), names)?;
                self.types.open(&url, watch)?;
                Meaning::Requested
            }
            Some(known) => {
                let (watch, warms) = (&mut known.watch, known.warms);
                let nonce = watch.nonce(&request.nonce);
                match names {
                    NormalNames::Replace(_) if nonce == Nonce::Stale => Meaning::Stale,
                    NormalNames::Replace(names) => {
                        let mut owed = watch.subscription().replace(&names)?;
                        // A request that answers no push is for all resources, unless these are being sent.
                        if (nonce == Nonce::None && !watch.is_pending()) || (nonce != Nonce::None && warms) {
                            owed = Owed::all();
                        }
                        watch.answered(nonce, owed, request.error)
                    }
                    // The subscription changes whichever push this answers (rule 7).
                    NormalNames::Change { subscribe, unsubscribe, .. } => {
                        let mut owed = watch.subscription().add(&subscribe, false)?;
                        owed.names.extend(watch.subscription().remove(&unsubscribe));
                        watch.answered(nonce, owed, request.error)
                    }
                }
            }
        };
        Ok(Event { sink, meaning, sent: self.types.version(&url), collection: url })
    }

    /// Returns about how many bytes the names of resources take that it holds for its client.
    pub(super) fn names_size(&self) -> usize {
        self.types.names_size()
    }

    /// Returns whether resources have a time to live on it.
    pub(super) fn supports_ttl(&self) -> bool {
        self.types.supports_ttl()
    }

    pub(super) fn wakeup(&self) -> Option<Instant> {
        self.types.wakeup()
    }

    pub(super) fn elapsed(&mut self, now: Instant) {
        self.types.elapsed(now);
    }

    pub(super) fn is_due(&mut self, catalogue: &Catalogue) -> bool {
        self.types.is_due(catalogue)
    }

    /// Returns the next push, if one is due.
    pub(super) fn next(&mut self, catalogue: &Catalogue) -> Option<Push> {
        self.types.next(catalogue)
    }
}

/// The first subscription to a type.
fn open(explicit: bool, names: NormalNames) -> Result<Watch, Status> {
    let mut subscription = Subscription::new(explicit);
    let (owed, versions) = match names {
        NormalNames::Replace(names) => (subscription.replace(&names)?, BTreeMap::new()),
        NormalNames::Change { subscribe, unsubscribe, versions } => {
            let mut owed = subscription.add(&subscribe, true)?;
            owed.names.extend(subscription.remove(&unsubscribe));
            (owed, versions)
        }
    };
    Ok(Watch::new(subscription, owed, versions))
}
