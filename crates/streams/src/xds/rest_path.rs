//! Types in the paths of REST: `/v3/discovery:clusters` (docs/behaviour/xds.md#rest).

use crate::stream::type_url::collection_of;
use mixer_adapter_config::{
    Collection,
    envoy::{self, ENVOY_TYPES},
};
use mixer_adapter_core::framework::suggest::suggest;

/// The prefix of the name of a type.
pub(super) const PREFIX: &str = "discovery:";

/// Returns the path for a type. For a type that is not Envoy's it ends in the last segment of the collection:
/// `/v3/discovery:rules`.
pub(super) fn path(type_url: &str) -> String {
    let collection = collection_of(type_url);
    let successor = envoy::successor(collection.as_str());
    let current = successor.unwrap_or(collection.as_str());
    let known = ENVOY_TYPES.iter().find(|known| known.message == current).and_then(|known| known.path);
    let name = known.or_else(|| collection.as_str().rsplit('/').next()).unwrap_or_default();
    let version = if successor.is_some() { "v2" } else { "v3" };
    format!("/{version}/{PREFIX}{name}")
}

/// Returns the type URL of a name in a path: a type of Envoy or a collection of Mixer. Mixer's collections have no
/// version 2.
pub(super) fn type_url(name: &str, v2: bool) -> Option<String> {
    if let Some(known) = ENVOY_TYPES.iter().find(|known| known.path == Some(name)) {
        let message = if v2 { envoy::predecessor(known.message)? } else { known.message };
        return Some(format!("type.googleapis.com/{message}"));
    }
    if v2 {
        return None;
    }
    let collection = Collection::mixer().find(|known| known.as_str().rsplit('/').next() == Some(name))?;
    Some(collection.as_str().to_owned())
}

/// Returns the name of a type of Envoy that is like this one.
pub(super) fn similar(name: &str) -> Option<&'static str> {
    suggest(name, ENVOY_TYPES.iter().filter_map(|known| known.path))
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
        for known in ENVOY_TYPES {
            let (message, Some(name)) = (known.message, known.path) else { continue };
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
