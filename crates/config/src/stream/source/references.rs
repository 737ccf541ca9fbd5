//! What resources of Envoy refer to by name: clusters to endpoints, listeners and scoped routes to routes.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::{
    envoy_v2,
    stream::{body, name},
};
use mixer_adapter_core::proto::Any;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const ENDPOINT: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const LISTENER: &str = "envoy.config.listener.v3.Listener";
const ROUTE: &str = "envoy.config.route.v3.RouteConfiguration";
const SCOPED_ROUTE: &str = "envoy.config.route.v3.ScopedRouteConfiguration";

/// The types that refer to resources of this one.
pub(super) fn referrers(collection: &str) -> &'static [&'static str] {
    match envoy_v2::successor(collection).unwrap_or(collection) {
        ENDPOINT => &[CLUSTER],
        ROUTE => &[LISTENER, SCOPED_ROUTE],
        _ => &[],
    }
}

/// The names that a cluster, a listener or a scoped route refers to.
pub(super) fn references(resource: &Any) -> Vec<Arc<str>> {
    let mut names = Vec::new();
    match resource.message_name() {
        CLUSTER => {
            let json = body::to_json(resource);
            if json["type"] == "EDS" {
                let service =
                    json["edsClusterConfig"]["serviceName"].as_str().filter(|name| !name.is_empty());
                names.extend(service.or_else(|| json["name"].as_str()).map(|name| normal(ENDPOINT, name)));
            }
        }
        LISTENER | SCOPED_ROUTE => routes(&body::to_json(resource), &mut names),
        _ => {}
    }
    names
}

/// The names of routes anywhere in a listener or a scoped route, also of those that the scoped routes within a listener refer to.
fn routes(json: &Json, names: &mut Vec<Arc<str>>) {
    match json {
        Json::Object(fields) => {
            let named = ["routeConfigName", "routeConfigurationName"].map(|field| fields.get(field));
            names.extend(named.into_iter().filter_map(|name| name?.as_str()).map(|name| normal(ROUTE, name)));
            fields.values().for_each(|value| routes(value, names));
        }
        Json::Array(items) => items.iter().for_each(|item| routes(item, names)),
        _ => {}
    }
}

fn normal(collection: &str, name: &str) -> Arc<str> {
    name::normal(collection, name).into()
}
