use std::time::Duration;

use tonic::service::Routes;

use super::{delta_messages::DeltaStream, fetch, rest, sotw_messages::SotwStream};
use crate::stream::{
    admission::ServiceOptions,
    source::{driver::ConfigServer, method::Served},
};
use mixer_adapter_net::Rate;

/// The services, the names of their methods without `Stream` or `Delta`, and the message of services of one type
/// (docs/behaviour/xds.md#services-and-methods).
const METHODS: [(&str, &str, &str); 19] = [
    ("service.discovery.v3.AggregatedDiscoveryService", "AggregatedResources", ""),
    ("service.listener.v3.ListenerDiscoveryService", "Listeners", "config.listener.v3.Listener"),
    ("service.route.v3.RouteDiscoveryService", "Routes", "config.route.v3.RouteConfiguration"),
    (
        "service.route.v3.ScopedRoutesDiscoveryService",
        "ScopedRoutes",
        "config.route.v3.ScopedRouteConfiguration",
    ),
    ("service.route.v3.VirtualHostDiscoveryService", "VirtualHosts", "config.route.v3.VirtualHost"),
    ("service.cluster.v3.ClusterDiscoveryService", "Clusters", "config.cluster.v3.Cluster"),
    ("service.endpoint.v3.EndpointDiscoveryService", "Endpoints", "config.endpoint.v3.ClusterLoadAssignment"),
    ("service.secret.v3.SecretDiscoveryService", "Secrets", "extensions.transport_sockets.tls.v3.Secret"),
    ("service.runtime.v3.RuntimeDiscoveryService", "Runtime", "service.runtime.v3.Runtime"),
    (
        "service.extension.v3.ExtensionConfigDiscoveryService",
        "ExtensionConfigs",
        "config.core.v3.TypedExtensionConfig",
    ),
    // Version 2 (docs/behaviour/xds-v2.md#services).
    ("service.discovery.v2.AggregatedDiscoveryService", "AggregatedResources", ""),
    ("api.v2.ListenerDiscoveryService", "Listeners", "api.v2.Listener"),
    ("api.v2.RouteDiscoveryService", "Routes", "api.v2.RouteConfiguration"),
    ("api.v2.ScopedRoutesDiscoveryService", "ScopedRoutes", "api.v2.ScopedRouteConfiguration"),
    ("api.v2.VirtualHostDiscoveryService", "VirtualHosts", "api.v2.route.VirtualHost"),
    ("api.v2.ClusterDiscoveryService", "Clusters", "api.v2.Cluster"),
    ("api.v2.EndpointDiscoveryService", "Endpoints", "api.v2.ClusterLoadAssignment"),
    ("service.discovery.v2.SecretDiscoveryService", "Secrets", "api.v2.auth.Secret"),
    ("service.discovery.v2.RuntimeDiscoveryService", "Runtime", "service.discovery.v2.Runtime"),
];
/// The first prefix of methods for changes: in version 2, and in services that have them.
const FIRST_DELTA: &str = "Incremental";
/// The type that is served as changes only.
const CHANGES_ONLY: &str = "VirtualHosts";

/// The rate of requests on one stream. A client answers each push of each type.
const REQUESTS: Rate = Rate { burst: 1000, every: Duration::from_millis(10) };

/// Returns the options for servers of xDS: clients that reconnect send long lists of versions.
pub fn default_options() -> ServiceOptions {
    ServiceOptions::of_source(16 << 20)
}

/// Returns the full names of the services of version 3, and of version 2 if `v2`.
pub fn services(v2: bool) -> impl Iterator<Item = String> {
    let served = METHODS.iter().filter(move |(service, ..)| v2 || !is_v2(service));
    served.map(|(service, ..)| format!("envoy.{service}"))
}

fn is_v2(service: &str) -> bool {
    service.contains(".v2.")
}

/// Adds the services of xDS to others: ADS, the services for a single type, and REST.
pub fn mount(mut services: Routes, source: &ConfigServer, options: &ServiceOptions) -> Routes {
    let served = Served::new(source, options);
    let router = services.axum_router_mut();
    let mut grown = std::mem::take(router);
    for (service, resources, message) in METHODS {
        let path = format!("/envoy.{service}/");
        let only = (!message.is_empty()).then(|| format!("type.googleapis.com/envoy.{message}"));
        let of_stream = only.clone();
        let delta = served.streams(REQUESTS, move |_: &ConfigServer| DeltaStream::new(of_stream.as_deref()));
        grown = grown.route(&format!("{path}Delta{resources}"), delta.clone());
        if is_v2(service) {
            grown = grown.route(&format!("{path}{FIRST_DELTA}{resources}"), delta);
        }
        if resources == CHANGES_ONLY {
            continue;
        }
        let of_stream = only.clone();
        let sotw = served.streams(REQUESTS, move |_: &ConfigServer| SotwStream::new(of_stream.as_deref()));
        grown = grown.route(&format!("{path}Stream{resources}"), sotw);
        if let Some(type_url) = only {
            grown = grown.route(&format!("{path}Fetch{resources}"), fetch::method(&served, type_url));
        }
    }
    *router = rest::mount(grown, served);
    services
}
