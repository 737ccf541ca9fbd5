use std::collections::BTreeMap;

use prost_types::{Struct, Value};

use crate::{
    identity::environment,
    proto::envoy::config::core::v3::{Extension, Node, node::UserAgentVersionType},
    settings::SourceSettings,
};

/// The features of this client that a server may use: it accepts resources in the wrapper of MCP, and without.
const FEATURES: [&str; 2] = ["io.istio.mcp.wrapped-resources", "io.istio.mcp.bare-resources"];

/// The identity of a client, and the resources that it requests.
#[derive(Clone, Debug, Default)]
pub struct XdsClient {
    pub(super) node: Node,
    /// The names by type URL. All resources of other types are requested.
    names: BTreeMap<String, Vec<String>>,
}

impl XdsClient {
    /// Creates a client that requests these names, by type URL, and all resources of other types.
    pub fn new(node: Node, names: BTreeMap<String, Vec<String>>) -> Self {
        Self { node, names }
    }

    /// Returns the names of the requested resources of a type; none for all.
    pub(super) fn names(&self, type_url: &str) -> Vec<String> {
        self.names.get(type_url).cloned().unwrap_or_default()
    }
}

impl From<Node> for XdsClient {
    /// Creates a client that requests all resources.
    fn from(node: Node) -> Self {
        Self::new(node, BTreeMap::new())
    }
}

/// Returns the node of this program's sink. In a pod it has the pod's name and namespace: `HOSTNAME` and
/// `POD_NAMESPACE`.
pub fn own_node(settings: &SourceSettings) -> Node {
    let name = environment("HOSTNAME").unwrap_or_else(|| "mixer-adapter".to_owned());
    let namespace = environment("POD_NAMESPACE").unwrap_or_else(|| settings.default_namespace.clone());
    let mut node = node(&name, &namespace, settings.extensions.clone());
    if let Some(id) = &settings.node_id {
        node.id.clone_from(id);
    }
    let metadata =
        settings.node_metadata.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str())));
    node.metadata.get_or_insert_default().fields.extend(metadata);
    node
}

/// Returns the node of a sink, in the form that istiod requires (docs/behaviour/xds.md#istiod-as-a-source).
///
/// The id has four parts, the second a valid address; the generator is istiod's for MCP resources. `extensions` are the
/// adapters of the program and their templates.
pub fn node(name: &str, namespace: &str, extensions: Vec<Extension>) -> Node {
    let fields = [("GENERATOR", "api"), ("NAMESPACE", namespace)];
    let fields = fields.map(|(key, value)| (key.to_owned(), Value::from(value)));
    Node {
        id: format!("sidecar~127.0.0.1~{name}.{namespace}~{namespace}.svc.cluster.local"),
        cluster: "mixer-adapter".to_owned(),
        metadata: Some(Struct { fields: BTreeMap::from(fields) }),
        user_agent_name: "mixer-adapter".to_owned(),
        user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(
            env!("CARGO_PKG_VERSION").to_owned(),
        )),
        extensions,
        client_features: FEATURES.map(str::to_owned).to_vec(),
        ..Node::default()
    }
}
