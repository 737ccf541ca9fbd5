use std::{sync::Arc, time::Duration};

use tonic::service::Routes;

use super::{delta::DeltaStream, fetch::FetchMethod, rest, sotw::SotwStream};
use crate::stream::{
    admission::{Admission, ServiceOptions},
    metrics::SOURCE,
    source::{driver::ConfigServer, method::Method},
};
use mixer_adapter_net::Rate;

/// The services, the names of their methods without `Stream` or `Delta`, and the type of services of one type
/// (docs/behaviour/xds.md#services-and-methods).
const METHODS: [(&str, &str, Option<&str>); 10] = [
    ("discovery.v3.AggregatedDiscoveryService", "AggregatedResources", None),
    (
        "listener.v3.ListenerDiscoveryService",
        "Listeners",
        Some("type.googleapis.com/envoy.config.listener.v3.Listener"),
    ),
    (
        "route.v3.RouteDiscoveryService",
        "Routes",
        Some("type.googleapis.com/envoy.config.route.v3.RouteConfiguration"),
    ),
    (
        "route.v3.ScopedRoutesDiscoveryService",
        "ScopedRoutes",
        Some("type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"),
    ),
    (
        "route.v3.VirtualHostDiscoveryService",
        "VirtualHosts",
        Some("type.googleapis.com/envoy.config.route.v3.VirtualHost"),
    ),
    (
        "cluster.v3.ClusterDiscoveryService",
        "Clusters",
        Some("type.googleapis.com/envoy.config.cluster.v3.Cluster"),
    ),
    (
        "endpoint.v3.EndpointDiscoveryService",
        "Endpoints",
        Some("type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"),
    ),
    (
        "secret.v3.SecretDiscoveryService",
        "Secrets",
        Some("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"),
    ),
    (
        "runtime.v3.RuntimeDiscoveryService",
        "Runtime",
        Some("type.googleapis.com/envoy.service.runtime.v3.Runtime"),
    ),
    (
        "extension.v3.ExtensionConfigDiscoveryService",
        "ExtensionConfigs",
        Some("type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"),
    ),
];
/// The methods of version 2 of Envoy's API (docs/behaviour/xds-v2.md#services).
const METHODS_V2: [(&str, &str, Option<&str>); 9] = [
    ("service.discovery.v2.AggregatedDiscoveryService", "AggregatedResources", None),
    ("api.v2.ListenerDiscoveryService", "Listeners", Some("type.googleapis.com/envoy.api.v2.Listener")),
    ("api.v2.RouteDiscoveryService", "Routes", Some("type.googleapis.com/envoy.api.v2.RouteConfiguration")),
    (
        "api.v2.ScopedRoutesDiscoveryService",
        "ScopedRoutes",
        Some("type.googleapis.com/envoy.api.v2.ScopedRouteConfiguration"),
    ),
    (
        "api.v2.VirtualHostDiscoveryService",
        "VirtualHosts",
        Some("type.googleapis.com/envoy.api.v2.route.VirtualHost"),
    ),
    ("api.v2.ClusterDiscoveryService", "Clusters", Some("type.googleapis.com/envoy.api.v2.Cluster")),
    (
        "api.v2.EndpointDiscoveryService",
        "Endpoints",
        Some("type.googleapis.com/envoy.api.v2.ClusterLoadAssignment"),
    ),
    (
        "service.discovery.v2.SecretDiscoveryService",
        "Secrets",
        Some("type.googleapis.com/envoy.api.v2.auth.Secret"),
    ),
    (
        "service.discovery.v2.RuntimeDiscoveryService",
        "Runtime",
        Some("type.googleapis.com/envoy.service.discovery.v2.Runtime"),
    ),
];
/// The first prefix of methods for changes: in version 2, and in services that have them.
const FIRST_DELTA: &str = "Incremental";
/// The type that is served as changes only.
const CHANGES_ONLY: &str = "VirtualHosts";

/// The rate of requests on one stream. A client answers each push of each type.
const REQUESTS: Rate = Rate { burst: 1000, every: Duration::from_millis(10) };

/// Returns the options for servers of xDS: clients that reconnect send long lists of versions.
pub fn default_options() -> ServiceOptions {
    ServiceOptions {
        max_streams: 10_000,
        new_streams: Rate { burst: 100, every: Duration::from_millis(10) },
        max_message_size: 16 << 20,
    }
}

/// Returns the full names of the services of version 3, and of version 2 if `v2`.
pub fn services(v2: bool) -> impl Iterator<Item = String> {
    let v3 = METHODS.iter().map(|(service, ..)| format!("envoy.service.{service}"));
    v3.chain(METHODS_V2.iter().filter(move |_| v2).map(|(service, ..)| format!("envoy.{service}")))
}

/// Adds the services of xDS to others: ADS, the services for a single type, and REST.
pub fn mount(mut services: Routes, source: &ConfigServer, options: &ServiceOptions) -> Routes {
    let admission = Arc::new(Admission::new(options, &SOURCE));
    let router = services.axum_router_mut();
    let mut grown = std::mem::take(router);
    let v3 =
        METHODS.iter().map(|(service, resources, only)| (format!("service.{service}"), *resources, *only));
    let v2 = METHODS_V2.iter().map(|(service, resources, only)| ((*service).to_owned(), *resources, *only));
    for (service, resources, only) in v3.chain(v2) {
        let path = |form: &str| format!("/envoy.{service}/{form}{resources}");
        let delta = Method::new(source, &admission, options, REQUESTS, move |_: &ConfigServer| {
            DeltaStream::new(only)
        });
        grown = grown.route_service(&path("Delta"), delta.clone());
        if service.contains(".v2.") {
            grown = grown.route_service(&path(FIRST_DELTA), delta);
        }
        if resources != CHANGES_ONLY {
            let sotw = Method::new(source, &admission, options, REQUESTS, move |_: &ConfigServer| {
                SotwStream::new(only)
            });
            grown = grown.route_service(&path("Stream"), sotw);
            if let Some(type_url) = only {
                let fetch = FetchMethod::new(source, &admission, options, type_url);
                grown = grown.route_service(&path("Fetch"), fetch);
            }
        }
    }
    *router = rest::mount(grown, source, &admission, options);
    services
}
