use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use crate::{
    proto::envoy::config::core::v3::Extension,
    stream::{redial::DialOptions, sink::cache::Cache},
};
use mixer_adapter_config::Collection;
use mixer_adapter_config::source::ReloadRequests;
use mixer_adapter_core::framework::setters;
use mixer_adapter_net::grpc::StreamMemory;
use mixer_adapter_net::tls;

/// The subscriptions of a source and the treatment of its resources, for every kind of source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SourceSettings {
    /// The namespace of resources without one.
    pub default_namespace: String,
    /// The collections to request. Files are read as a whole, whatever is listed here.
    pub collections: Vec<Wanted>,
    /// Accepts the valid resources of a push that also has invalid ones, with the previous versions of these.
    pub skip_bad_resources: bool,
    /// The cache of the last accepted configuration, for a restart without its source.
    pub cache: Option<Cache>,
    /// TLS of connections to servers that use it; without it such servers cannot be used.
    pub tls: Option<Arc<tls::Client>>,
    /// The file with the token that servers are shown, over TLS alone.
    pub token_file: Option<PathBuf>,
    /// The id of the sink for MCP servers; by default it is derived from the name of the host.
    pub sink_id: Option<String>,
    /// The annotations of the sink.
    pub sink_annotations: BTreeMap<String, String>,
    /// The id of the node for xDS servers.
    pub node_id: Option<String>,
    /// Further metadata of the node for xDS servers.
    pub node_metadata: BTreeMap<String, String>,
    /// The longest delay between connection attempts.
    pub longest_wait: Duration,
    /// The extensions to announce to xDS servers: adapters and their templates.
    pub extensions: Vec<Extension>,
    /// The names to request from xDS servers, by type URL. All resources of other types are requested.
    pub resource_names: BTreeMap<String, Vec<String>>,
    /// Requests to read files again, whether they have changed or not.
    pub reload: ReloadRequests,
    /// The memory of pushes that arrive or are decoded, of all sources; `None` leaves it to each.
    pub memory: Option<StreamMemory>,
}

setters!(SourceSettings {
    default_namespace: String,
    collections: Vec<Wanted>,
    skip_bad_resources: bool,
    cache: Option<Cache>,
    tls: Option<Arc<tls::Client>>,
    token_file: Option<PathBuf>,
    sink_id: Option<String>,
    sink_annotations: BTreeMap<String, String>,
    node_id: Option<String>,
    node_metadata: BTreeMap<String, String>,
    longest_wait: Duration,
    extensions: Vec<Extension>,
    resource_names: BTreeMap<String, Vec<String>>,
    reload: ReloadRequests,
    memory: Option<StreamMemory>,
});

/// A requested collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The name, such as `istio/policy/v1beta1/rules`.
    pub collection: String,
    /// Whether readiness waits for it. A collection that is not required is requested, too.
    pub required: bool,
}

impl SourceSettings {
    /// Creates settings for Mixer's own collections, all of them required.
    pub fn new(default_namespace: impl Into<String>) -> Self {
        let wanted =
            |collection: Collection| Wanted { collection: collection.as_str().to_owned(), required: true };
        Self {
            default_namespace: default_namespace.into(),
            collections: Collection::mixer().map(wanted).collect(),
            skip_bad_resources: false,
            cache: None,
            tls: None,
            token_file: None,
            sink_id: None,
            sink_annotations: BTreeMap::new(),
            node_id: None,
            node_metadata: BTreeMap::new(),
            longest_wait: DialOptions::default().longest_wait,
            extensions: Vec::new(),
            resource_names: BTreeMap::new(),
            reload: ReloadRequests::default(),
            memory: None,
        }
    }

    /// Returns the required collections.
    pub fn required(&self) -> BTreeSet<Collection> {
        let required = self.collections.iter().filter(|wanted| wanted.required);
        required.map(|wanted| Collection::new(&wanted.collection)).collect()
    }
}
