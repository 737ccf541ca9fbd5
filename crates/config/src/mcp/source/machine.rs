use std::{collections::BTreeMap, sync::Arc};

use tonic::Status;

use crate::{
    proto::istio::mcp::v1alpha1::{RequestResources, Resources},
    stream::{
        ContentVersion,
        source::{Catalogue, Dialogue, Event, Known, Meaning, SinkId, Snapshot},
    },
};

/// What a source that dials sends first, for the sink to refuse it and then ask (docs/behaviour/mcp.md#sources-that-dial).
pub const TRIGGER: &str = "$triggerCollection";

/// How many collections a sink may ask for on one stream.
const COLLECTIONS: usize = 1000;

/// One stream to a sink, as a source speaks it: requests go in, pushes come out.
///
/// At most one push of a collection is under way. Whatever changes meanwhile, the answer to it is followed by the newest
/// state alone.
#[derive(Debug, Default)]
pub struct Machine {
    incremental: bool,
    nonces: u64,
    collections: BTreeMap<String, Watch>,
    /// The order collections are looked at in: as they were asked for.
    order: Vec<String>,
}

#[derive(Debug, Default)]
struct Watch {
    /// The push that is under way.
    pending: Option<Pending>,
    known: Known,
    /// The version pushed last, also if it was refused: it is not sent again.
    sent: Option<ContentVersion>,
    /// Whether the sink asked for changes only.
    incremental: bool,
}

#[derive(Debug)]
struct Pending {
    nonce: String,
    state: Arc<Snapshot>,
}

impl Machine {
    /// A stream that has just opened. `incremental` lets sinks ask for changes only.
    pub fn new(incremental: bool) -> Self {
        Self { incremental, ..Self::default() }
    }

    /// A request arrived. An error ends the stream.
    pub fn requested(&mut self, request: RequestResources, catalogue: &Catalogue) -> Result<Meaning, Status> {
        let RequestResources { collection, initial_resource_versions: versions, error_detail, .. } = request;
        if collection == TRIGGER || (collection.is_empty() && error_detail.is_some()) {
            return Ok(Meaning::Triggered);
        }
        if !catalogue.serves(&collection) {
            return Err(Status::invalid_argument(format!("unsupported collection {collection:?}")));
        }
        let watch = self.collections.get_mut(&collection);
        let pending = watch.as_ref().and_then(|watch| watch.pending.as_ref());
        let answers = pending.is_some_and(|pending| pending.nonce == request.response_nonce);
        if !answers && !request.response_nonce.is_empty() {
            return Ok(Meaning::Stale);
        }
        let watch = match watch {
            Some(watch) => watch,
            None if self.order.len() == COLLECTIONS => {
                return Err(Status::resource_exhausted(format!(
                    "at most {COLLECTIONS} collections are served"
                )));
            }
            None => {
                self.order.push(collection.clone());
                self.collections.entry(collection).or_default()
            }
        };
        watch.incremental = request.incremental;
        // A request without a nonce counts as the answer to a push under way; sinks send one of both, not two.
        if let Some(Pending { state, .. }) = watch.pending.take() {
            return Ok(match error_detail {
                Some(error) => Meaning::Refused(error),
                None => {
                    watch.known = Known::State(state);
                    Meaning::Accepted
                }
            });
        }
        watch.sent = None;
        watch.known = if versions.is_empty() { Known::Nothing } else { Known::Versions(versions) };
        Ok(Meaning::Asked)
    }

    /// The version of a collection that was pushed last.
    pub(super) fn sent(&self, collection: &str) -> Option<ContentVersion> {
        self.collections.get(collection)?.sent
    }

    /// Whether there is a [next](Self::next) push.
    pub(super) fn is_due(&self, catalogue: &Catalogue) -> bool {
        self.due(catalogue).is_some()
    }

    fn due(&self, catalogue: &Catalogue) -> Option<&String> {
        self.order.iter().find(|collection| {
            let watch = self.collections.get(*collection);
            let snapshot = catalogue.snapshot(collection);
            watch.zip(snapshot).is_some_and(|(watch, snapshot)| watch.is_due(snapshot))
        })
    }

    /// The next push, if one is due.
    pub fn next(&mut self, catalogue: &Catalogue) -> Option<Resources> {
        let collection = self.due(catalogue)?.clone();
        let state = catalogue.snapshot(&collection)?.clone();
        self.nonces += 1;
        let nonce = self.nonces.to_string();
        let watch = self.collections.get_mut(&collection)?;
        watch.sent = Some(state.version());
        watch.pending = Some(Pending { nonce: nonce.clone(), state: state.clone() });
        let delta = if self.incremental && watch.incremental { state.since(&watch.known) } else { None };
        let push = Resources {
            system_version_info: state.version().to_string(),
            collection,
            nonce,
            ..Resources::default()
        };
        Some(match delta {
            Some(delta) => Resources {
                resources: delta.changed.iter().map(|entry| entry.resource().to_message()).collect(),
                removed_resources: delta.removed.iter().map(|(name, _)| name.to_string()).collect(),
                incremental: true,
                ..push
            },
            None => Resources {
                resources: state.resources().map(|resource| resource.to_message()).collect(),
                ..push
            },
        })
    }
}

impl Dialogue for Machine {
    type Request = RequestResources;
    type Push = Resources;

    fn on_request(&mut self, request: RequestResources, catalogue: &Catalogue) -> Result<Event, Status> {
        let collection = request.collection.clone();
        let node = request.sink_node.clone().filter(|node| !node.id.is_empty());
        let sink = node.map(|node| SinkId { id: node.id, annotations: node.annotations });
        let meaning = self.requested(request, catalogue)?;
        let sent = self.sent(&collection).map(|version| version.to_string());
        Ok(Event { sink, collection, meaning, sent })
    }

    fn is_due(&self, catalogue: &Catalogue) -> bool {
        Machine::is_due(self, catalogue)
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<Resources> {
        Machine::next(self, catalogue)
    }
}

impl Watch {
    fn is_due(&self, snapshot: &Snapshot) -> bool {
        self.pending.is_none() && self.sent != Some(snapshot.version())
    }
}
