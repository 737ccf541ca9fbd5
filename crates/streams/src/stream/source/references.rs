//! The references of Envoy's resources by name: from clusters to endpoints, from listeners and scoped routes to routes.

use std::sync::Arc;

use prost_reflect::{DynamicMessage, Value};

use crate::{stream::name, types::Types};
use mixer_adapter_config::{content, envoy};
use mixer_adapter_core::proto::Any;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const ENDPOINT: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const LISTENER: &str = "envoy.config.listener.v3.Listener";
const ROUTE: &str = "envoy.config.route.v3.RouteConfiguration";
const SCOPED_ROUTE: &str = "envoy.config.route.v3.ScopedRouteConfiguration";

/// The value of `Cluster.DiscoveryType`.
const EDS: i32 = 3;
/// The maximum depth of messages within an `Any`.
const NESTED: usize = 32;

/// Returns the types that refer to resources of this one.
pub(super) fn referrers(collection: &str) -> &'static [&'static str] {
    match envoy::successor(collection).unwrap_or(collection) {
        ENDPOINT => &[CLUSTER],
        ROUTE => &[LISTENER, SCOPED_ROUTE],
        _ => &[],
    }
}

/// Returns the names that a cluster, a listener or a scoped route refers to.
pub(super) fn references(resource: &Any) -> Vec<Arc<str>> {
    let message = resource.message_name();
    let mut names = Vec::new();
    if !matches!(message, CLUSTER | LISTENER | SCOPED_ROUTE) {
        return names;
    }
    let read = Types::default().find(message).map(|of| DynamicMessage::decode(of, resource.value.clone()));
    match read {
        Some(Ok(cluster)) if message == CLUSTER => names.extend(endpoints(&cluster)),
        Some(Ok(referrer)) => routes(&referrer, NESTED, &mut names),
        _ => {}
    }
    names
}

/// Returns the name of the endpoints of a cluster that has them by EDS.
fn endpoints(cluster: &DynamicMessage) -> Option<Arc<str>> {
    cluster.get_field_by_name("type").filter(|kind| kind.as_enum_number() == Some(EDS))?;
    let config = cluster.get_field_by_name("eds_cluster_config")?;
    let service = config.as_message().and_then(|config| text(config, "service_name"));
    service.or_else(|| text(cluster, "name")).map(|name| normal(ENDPOINT, &name))
}

fn text(message: &DynamicMessage, field: &str) -> Option<String> {
    message.get_field_by_name(field)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Finds the names of routes anywhere in a listener or a scoped route, including scoped routes within a listener. A
/// message of an unknown type has no references.
fn routes(message: &DynamicMessage, nested: usize, names: &mut Vec<Arc<str>>) {
    if let Some(inner) = content(message) {
        if nested > 0 {
            routes(&inner, nested - 1, names);
        }
        return;
    }
    for (field, value) in message.fields() {
        match value {
            Value::String(name)
                if ["route_config_name", "route_configuration_name"].contains(&field.name()) =>
            {
                names.push(normal(ROUTE, name));
            }
            Value::Message(message) => routes(message, nested, names),
            Value::List(items) => {
                items.iter().filter_map(Value::as_message).for_each(|item| routes(item, nested, names))
            }
            Value::Map(entries) => {
                entries.values().filter_map(Value::as_message).for_each(|item| routes(item, nested, names));
            }
            _ => {}
        }
    }
}

fn normal(collection: &str, name: &str) -> Arc<str> {
    name::normal(collection, name).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use prost::Message as _;
    use serde_json::json;

    use super::*;
    use crate::stream::body;

    fn references_of(json: serde_json::Value) -> Vec<Arc<str>> {
        references(&body::of_any(&Types::default(), json).unwrap())
    }

    #[test]
    fn a_cluster_refers_to_endpoints_if_it_has_them_by_eds() {
        let cluster = |kind: &str, service: &str| {
            references_of(json!({
                "@type": format!("type.googleapis.com/{CLUSTER}"),
                "name": "a", "type": kind, "eds_cluster_config": { "service_name": service },
            }))
        };
        assert_eq!(cluster("EDS", "b"), ["b".into()]);
        assert_eq!(cluster("EDS", ""), ["a".into()]);
        assert_eq!(cluster("STATIC", "b"), []);
        let bare = json!({ "@type": format!("type.googleapis.com/{CLUSTER}"), "name": "a", "type": "EDS" });
        assert_eq!(references_of(bare), ["a".into()]);
    }

    /// Otherwise the routes would be hidden from the nodes of the listener.
    #[test]
    fn a_listener_with_an_extension_that_is_not_known_refers_to_its_routes() {
        let manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
        let of = |filter: &str| {
            json!({
                "@type": format!("type.googleapis.com/{LISTENER}"),
                "name": "front",
                "filter_chains": [{ "filters": [
                    { "name": "other", "typed_config": { "@type": "type.googleapis.com/google.protobuf.StringValue", "value": filter } },
                    { "name": "http", "typed_config": { "@type": manager, "stat_prefix": "x", "rds": { "route_config_name": "routes" } } },
                ] }],
            })
        };
        let mut listener = body::of_any(&Types::default(), of("x")).unwrap();
        assert_eq!(references(&listener), ["routes".into()]);
        let descriptor = Types::default().find(LISTENER).unwrap();
        let mut message = DynamicMessage::decode(descriptor, listener.value.clone()).unwrap();
        let chains = message.get_field_by_name_mut("filter_chains").unwrap().as_list_mut().unwrap();
        let filters = chains[0].as_message_mut().unwrap().get_field_by_name_mut("filters").unwrap();
        let config = filters.as_list_mut().unwrap()[0].as_message_mut().unwrap();
        let config = config.get_field_by_name_mut("typed_config").unwrap().as_message_mut().unwrap();
        config.set_field_by_name("type_url", Value::String("type.googleapis.com/acme.Filter".to_owned()));
        listener.value = message.encode_to_vec().into();
        assert_eq!(references(&listener), ["routes".into()]);
    }
}
