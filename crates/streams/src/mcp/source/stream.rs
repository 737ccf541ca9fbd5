use tonic::Status;

use crate::{
    proto::istio::mcp::v1alpha1::{RequestResources, Resources},
    stream::{
        name::{self, versions_size},
        source::{
            catalogue::Catalogue,
            dialogue::{Dialogue, Event, Meaning, SinkId},
            entry::{Entries, Entry},
            pushed::{Encoding, Pushed},
            snapshot::Known,
        },
        type_url::collection_of,
        version::ContentVersion,
    },
};
use mixer_adapter_config::{Collection, Kind};

/// The collection of the first message of a source that dials, which the sink refuses before it requests
/// (docs/behaviour/mcp.md#sources-that-dial).
pub const TRIGGER: &str = "$triggerCollection";

/// The number of the field of a push that holds its resources.
const RESOURCES: u32 = 3;

/// The maximum number of collections that a sink may request on one stream.
const COLLECTIONS: usize = 1000;

/// One stream to a sink, without I/O: requests go in, pushes come out.
///
/// At most one push of a collection is unanswered. Changes in the meantime are sent together, as the newest state,
/// after its answer.
#[derive(Debug, Default)]
pub struct McpStream {
    incremental: bool,
    nonces: u64,
    /// The requested collections, in the order of dependency.
    watches: Vec<Watch>,
}

#[derive(Debug)]
struct Watch {
    /// The name of the collection in requests.
    name: String,
    collection: Collection,
    /// The unanswered push.
    pending: Option<Pending>,
    known: Known,
    /// About how many bytes the names in it take.
    names_size: usize,
    /// The version that was pushed last, also if it was refused: it is not sent again.
    sent: Option<ContentVersion>,
    /// Whether the sink requested changes only.
    incremental: bool,
}

#[derive(Debug)]
struct Pending {
    nonce: String,
    /// The state without its encodings, which only the next push needs.
    state: Entries,
}

impl McpStream {
    /// Creates a stream that has just opened. `incremental` permits sinks to request changes only.
    pub fn new(incremental: bool) -> Self {
        Self { incremental, ..Self::default() }
    }

    /// Handles a request. An error ends the stream.
    pub fn requested(&mut self, request: RequestResources, catalogue: &Catalogue) -> Result<Meaning, Status> {
        let RequestResources { collection: name, initial_resource_versions: versions, error_detail, .. } =
            request;
        if name == TRIGGER || (name.is_empty() && error_detail.is_some()) {
            return Ok(Meaning::Triggered);
        }
        let collection = collection(&name);
        if !catalogue.serves(collection.as_str()) {
            return Err(Status::invalid_argument(format!("unsupported collection {name:?}")));
        }
        let place = self.watches.iter().position(|watch| watch.name == name);
        let pending = place.and_then(|place| self.watches[place].pending.as_ref());
        let answers = pending.is_some_and(|pending| pending.nonce == request.response_nonce);
        if !answers && !request.response_nonce.is_empty() {
            return Ok(Meaning::Stale);
        }
        let watch = match place {
            Some(place) => &mut self.watches[place],
            None if self.watches.len() == COLLECTIONS => {
                return Err(Status::resource_exhausted(format!(
                    "at most {COLLECTIONS} collections are served"
                )));
            }
            None => self.open(name, collection),
        };
        watch.incremental = request.incremental;
        // A request without a nonce counts as the answer to an unanswered push; sinks send either, not both.
        if let Some(Pending { state, .. }) = watch.pending.take() {
            return Ok(match error_detail {
                Some(error) => Meaning::Refused(error),
                None => {
                    watch.known = Known::State(state);
                    watch.names_size = 0;
                    Meaning::Accepted
                }
            });
        }
        watch.sent = None;
        watch.names_size = versions_size(&versions);
        watch.known = if versions.is_empty() {
            Known::Nothing
        } else {
            Known::Versions(name::normal_versions(watch.collection.as_str(), versions))
        };
        Ok(Meaning::Requested)
    }

    /// Begins to serve a collection on this stream.
    fn open(&mut self, name: String, collection: Collection) -> &mut Watch {
        collection.log_if_unknown();
        let watch = Watch {
            name,
            collection,
            pending: None,
            known: Known::Nothing,
            names_size: 0,
            sent: None,
            incremental: false,
        };
        let place = self.watches.partition_point(|other| other.rank() <= watch.rank());
        self.watches.insert(place, watch);
        &mut self.watches[place]
    }

    /// Returns the version of a collection that was pushed last.
    fn sent(&self, name: &str) -> Option<ContentVersion> {
        self.watches.iter().find(|watch| watch.name == name)?.sent
    }

    /// Returns the index of the collection that is pushed next. Changes of Mixer's collections wait for changes of the
    /// collections that they refer to.
    fn due(&self, catalogue: &Catalogue) -> Option<usize> {
        let mut waits = false;
        self.watches.iter().position(|watch| {
            let state = catalogue.snapshot(watch.collection.as_str());
            if !state.is_some_and(|state| watch.sent != Some(state.version())) {
                return false;
            }
            let (is_ordered, is_first) = (watch.collection.role().is_some(), watch.sent.is_none());
            if watch.pending.is_none() && (is_first || !(waits && is_ordered)) {
                return true;
            }
            waits |= is_ordered;
            false
        })
    }

    /// Returns the next push, if one is due.
    pub fn next(&mut self, catalogue: &Catalogue) -> Option<Resources> {
        self.next_push(catalogue)?.into_message().ok()
    }

    fn next_push(&mut self, catalogue: &Catalogue) -> Option<Pushed<Resources>> {
        let place = self.due(catalogue)?;
        let watch = &mut self.watches[place];
        let state = catalogue.snapshot(watch.collection.as_str())?.clone();
        self.nonces += 1;
        let nonce = self.nonces.to_string();
        watch.sent = Some(state.version());
        watch.pending = Some(Pending { nonce: nonce.clone(), state: state.entries().clone() });
        let delta = if self.incremental && watch.incremental { state.since(&watch.known) } else { None };
        let push = Resources {
            system_version_info: state.version().to_string(),
            collection: watch.name.clone(),
            nonce,
            ..Resources::default()
        };
        Some(match delta {
            Some(delta) => Pushed::from(Resources {
                resources: delta.changed.iter().map(|entry| entry.to_message()).collect(),
                removed_resources: delta.removed.iter().map(|(name, _)| name.to_string()).collect(),
                incremental: true,
                ..push
            }),
            None => {
                Pushed { message: push, shared: state.encoded(Encoding::Mcp, RESOURCES, Entry::to_message) }
            }
        })
    }
}

impl Dialogue for McpStream {
    type Request = RequestResources;
    type Push = Resources;

    fn on_request(&mut self, request: RequestResources, catalogue: &Catalogue) -> Result<Event, Status> {
        let name = request.collection.clone();
        let node = request.sink_node.clone().filter(|node| !node.id.is_empty());
        let sink = node.map(|node| SinkId { id: node.id, annotations: node.annotations });
        let meaning = self.requested(request, catalogue)?;
        let sent = self.sent(&name).map(|version| version.to_string());
        Ok(Event { sink, collection: collection(&name).as_str().to_owned(), meaning, sent })
    }

    fn names_size(&self) -> usize {
        self.watches.iter().map(|watch| watch.names_size).sum()
    }

    fn is_due(&mut self, catalogue: &Catalogue) -> bool {
        self.due(catalogue).is_some()
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<Pushed<Resources>> {
        self.next_push(catalogue)
    }
}

impl Watch {
    /// Returns the order of the collection: referenced collections come first, collections that are not Mixer's last.
    fn rank(&self) -> (bool, Option<Kind>) {
        let role = self.collection.role();
        (role.is_none(), role)
    }
}

/// Returns the collection of that name. Sinks of Istio 1.0 name collections by the type URL of their resources.
fn collection(name: &str) -> Collection {
    match name.split_once('/') {
        Some((host, message)) if host.contains('.') && !message.contains('/') => collection_of(name),
        _ => Collection::new(name),
    }
}
