/// A type of resources with a discovery service of Envoy.
pub(crate) struct EnvoyType {
    /// The message.
    pub(crate) message: &'static str,
    /// The short name of the service.
    pub(crate) service: &'static str,
    /// The name in the paths of REST: `/v3/discovery:clusters`.
    pub(crate) path: Option<&'static str>,
}

impl EnvoyType {
    const fn new(message: &'static str, service: &'static str, path: Option<&'static str>) -> Self {
        Self { message, service, path }
    }
}

/// All of these types.
pub(crate) const ENVOY_TYPES: [EnvoyType; 9] = [
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
