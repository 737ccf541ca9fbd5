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
use mixer_adapter_core::framework::settings;
use mixer_adapter_net::grpc::StreamMemory;
use mixer_adapter_net::tls;

settings! {
    /// The subscriptions of a source and the treatment of its resources, for every kind of source.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct SourceSettings {
        /// The namespace of resources without one.
        default_namespace: String = "istio-system".to_owned(),
        /// The collections to request. Files are read as a whole, whatever is listed here.
        collections: Vec<Wanted> = Collection::mixer().map(Wanted::required).collect(),
        /// Accepts the valid resources of a push that also has invalid ones, with the previous versions of these.
        skip_bad_resources: bool = false,
        /// The cache of the last accepted configuration, for a restart without its source.
        cache: Option<Cache> = None,
        /// TLS of connections to servers that use it; without it such servers cannot be used.
        tls: Option<Arc<tls::Client>> = None,
        /// The file with the token that servers are shown, over TLS alone.
        token_file: Option<PathBuf> = None,
        /// The id of the sink for MCP servers; by default it is derived from the name of the host.
        sink_id: Option<String> = None,
        /// The annotations of the sink.
        sink_annotations: BTreeMap<String, String> = BTreeMap::new(),
        /// The id of the node for xDS servers.
        node_id: Option<String> = None,
        /// Further metadata of the node for xDS servers.
        node_metadata: BTreeMap<String, String> = BTreeMap::new(),
        /// The longest delay between connection attempts.
        longest_wait: Duration = DialOptions::default().longest_wait,
        /// The extensions to announce to xDS servers: adapters and their templates.
        extensions: Vec<Extension> = Vec::new(),
        /// The names to request from xDS servers, by type URL. All resources of other types are requested.
        resource_names: BTreeMap<String, Vec<String>> = BTreeMap::new(),
        /// Requests to read files again, whether they have changed or not.
        reload: ReloadRequests = ReloadRequests::default(),
        /// The memory of pushes that arrive or are decoded, of all sources; `None` leaves it to each.
        memory: Option<StreamMemory> = None,
    }
}

/// A requested collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The name, such as `istio/policy/v1beta1/rules`.
    pub collection: String,
    /// Whether readiness waits for it. A collection that is not required is requested, too.
    pub required: bool,
}

impl Wanted {
    /// Creates a request for a collection that readiness waits for.
    pub fn required(collection: impl ToString) -> Self {
        Self { collection: collection.to_string(), required: true }
    }
}

impl SourceSettings {
    /// Creates settings for Mixer's own collections, all of them required.
    pub fn new(default_namespace: impl Into<String>) -> Self {
        Self { default_namespace: default_namespace.into(), ..Self::default() }
    }

    /// Returns the required collections.
    pub fn required(&self) -> BTreeSet<Collection> {
        let required = self.collections.iter().filter(|wanted| wanted.required);
        required.map(|wanted| Collection::new(&wanted.collection)).collect()
    }
}
