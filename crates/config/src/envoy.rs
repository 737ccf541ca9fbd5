//! Envoy's types of resources by name, in versions 2 and 3 of its API. Their messages are not known here.

use std::{collections::HashMap, sync::LazyLock};

/// A type of resources with a discovery service of Envoy.
#[derive(Clone, Copy, Debug)]
pub struct EnvoyType {
    /// The message.
    pub message: &'static str,
    /// The short name of the service.
    pub service: &'static str,
    /// The name in the paths of REST: `/v3/discovery:clusters`.
    pub path: Option<&'static str>,
}

impl EnvoyType {
    const fn new(message: &'static str, service: &'static str, path: Option<&'static str>) -> Self {
        Self { message, service, path }
    }
}

/// All of these types.
pub const ENVOY_TYPES: [EnvoyType; 9] = [
    EnvoyType::new("envoy.config.cluster.v3.Cluster", "CDS", Some("clusters")),
    EnvoyType::new("envoy.config.endpoint.v3.ClusterLoadAssignment", "EDS", Some("endpoints")),
    EnvoyType::new("envoy.config.listener.v3.Listener", "LDS", Some("listeners")),
    EnvoyType::new("envoy.config.route.v3.RouteConfiguration", "RDS", Some("routes")),
    EnvoyType::new("envoy.config.route.v3.ScopedRouteConfiguration", "SRDS", Some("scoped-routes")),
    EnvoyType::new("envoy.config.route.v3.VirtualHost", "VHDS", None),
    EnvoyType::new("envoy.extensions.transport_sockets.tls.v3.Secret", "SDS", Some("secrets")),
    EnvoyType::new("envoy.service.runtime.v3.Runtime", "RTDS", Some("runtime")),
    EnvoyType::new("envoy.config.core.v3.TypedExtensionConfig", "ECDS", Some("extension_configs")),
];

/// Messages of v2 and their successors, one per line (`crates/streams/descriptors/README.md`).
const MESSAGES: &str = include_str!("envoy_v2.tsv");

static SUCCESSORS: LazyLock<HashMap<&str, &str>> =
    LazyLock::new(|| MESSAGES.lines().filter_map(|line| line.split_once('\t')).collect());
static PREDECESSORS: LazyLock<HashMap<&str, &str>> =
    LazyLock::new(|| SUCCESSORS.iter().map(|(old, new)| (*new, *old)).collect());

/// The message of v3 that a message of v2 became.
pub fn successor(message: &str) -> Option<&'static str> {
    SUCCESSORS.get(message).copied()
}

/// Returns the message of v2 that became this message of v3.
pub fn predecessor(message: &str) -> Option<&'static str> {
    PREDECESSORS.get(message).copied()
}

/// Whether a type URL, or the name of a message, is of v2.
pub fn is_v2(type_url: &str) -> bool {
    successor(type_url.rsplit('/').next().unwrap_or_default()).is_some()
}
