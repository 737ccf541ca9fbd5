//! Types in the paths of REST: `/v3/discovery:clusters` (docs/behaviour/xds.md#rest).

use crate::{Collection, envoy_v2, stream::collection_of};

/// What stands before the name of a type.
pub(super) const PREFIX: &str = "discovery:";

/// Envoy's types, and what paths call them.
const NAMES: [(&str, &str); 8] = [
    ("envoy.config.cluster.v3.Cluster", "clusters"),
    ("envoy.config.endpoint.v3.ClusterLoadAssignment", "endpoints"),
    ("envoy.config.listener.v3.Listener", "listeners"),
    ("envoy.config.route.v3.RouteConfiguration", "routes"),
    ("envoy.config.route.v3.ScopedRouteConfiguration", "scoped-routes"),
    ("envoy.service.runtime.v3.Runtime", "runtime"),
    ("envoy.extensions.transport_sockets.tls.v3.Secret", "secrets"),
    ("envoy.config.core.v3.TypedExtensionConfig", "extension_configs"),
];

/// The path for a type. That of a type that is not Envoy's ends in the last segment of the collection: `/v3/discovery:rules`.
pub(super) fn path(type_url: &str) -> String {
    let collection = collection_of(type_url);
    let successor = envoy_v2::successor(collection.as_str());
    let current = successor.unwrap_or(collection.as_str());
    let known = NAMES.iter().find(|(message, _)| *message == current).map(|(_, name)| *name);
    let name = known.or_else(|| collection.as_str().rsplit('/').next()).unwrap_or_default();
    let version = if successor.is_some() { "v2" } else { "v3" };
    format!("/{version}/{PREFIX}{name}")
}

/// The type URL of what a path calls by this name: one of Envoy's types, or the name of one of Mixer's collections. Those have no
/// version 2.
pub(super) fn type_url(name: &str, v2: bool) -> Option<String> {
    if let Some((message, _)) = NAMES.iter().find(|(_, known)| *known == name) {
        let message = if v2 { envoy_v2::predecessor(message)? } else { message };
        return Some(format!("type.googleapis.com/{message}"));
    }
    if v2 {
        return None;
    }
    let collection = Collection::mixer().find(|known| known.as_str().rsplit('/').next() == Some(name))?;
    Some(collection.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_envoy_have_its_paths_and_others_the_name_of_their_collection() {
        assert_eq!(path("type.googleapis.com/envoy.config.cluster.v3.Cluster"), "/v3/discovery:clusters");
        assert_eq!(path("config.istio.io/v1alpha2/rule"), "/v3/discovery:rules");
        assert_eq!(path("core/v1/Service"), "/v3/discovery:Service");
    }

    #[test]
    fn every_path_of_envoy_names_its_type() {
        for (message, name) in NAMES {
            assert_eq!(type_url(name, false), Some(format!("type.googleapis.com/{message}")));
            if let Some(older) = type_url(name, true) {
                assert_eq!(path(&older), format!("/v2/discovery:{name}"));
            }
        }
        assert_eq!(
            type_url("routes", true).as_deref(),
            Some("type.googleapis.com/envoy.api.v2.RouteConfiguration")
        );
        assert_eq!(type_url("rules", false).as_deref(), Some("istio/policy/v1beta1/rules"));
        assert_eq!((type_url("Service", false), type_url("rules", true)), (None, None));
    }
}
