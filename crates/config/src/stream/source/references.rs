//! What resources of Envoy refer to by name: clusters to endpoints, listeners to routes.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::{envoy_v2, stream::body};
use mixer_adapter_core::proto::Any;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const ENDPOINT: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const LISTENER: &str = "envoy.config.listener.v3.Listener";
const ROUTE: &str = "envoy.config.route.v3.RouteConfiguration";

/// The type that refers to resources of this one.
pub(super) fn referrer(collection: &str) -> Option<&'static str> {
    match envoy_v2::successor(collection).unwrap_or(collection) {
        ENDPOINT => Some(CLUSTER),
        ROUTE => Some(LISTENER),
        _ => None,
    }
}

/// The names that a cluster or a listener refers to.
pub(super) fn references(resource: &Any) -> Vec<Arc<str>> {
    let mut names = Vec::new();
    let json = body::to_json(resource);
    match resource.message_name() {
        CLUSTER if json["type"] == "EDS" => {
            let service = json["edsClusterConfig"]["serviceName"].as_str().filter(|name| !name.is_empty());
            names.extend(service.or_else(|| json["name"].as_str()).map(Arc::from));
        }
        LISTENER => routes(&json, &mut names),
        _ => {}
    }
    names
}

/// The names of routes anywhere in a listener.
fn routes(json: &Json, names: &mut Vec<Arc<str>>) {
    match json {
        Json::Object(fields) => {
            names.extend(fields.get("routeConfigName").and_then(Json::as_str).map(Arc::from));
            fields.values().for_each(|value| routes(value, names));
        }
        Json::Array(items) => items.iter().for_each(|item| routes(item, names)),
        _ => {}
    }
}
