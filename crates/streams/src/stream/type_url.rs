//! Collections as xDS names them, by the type URL of their resources.

use mixer_adapter_config::{Collection, Kind};

/// The prefix of type URLs of messages.
const HOST: &str = "type.googleapis.com/";
/// Istio's name of the group without a name.
const CORE: &str = "core";
/// The prefix of collections that are in no table.
const KUBERNETES: &str = "k8s/";

/// Returns the collection of the resources of a type.
///
/// `group/version/Kind` is the collection of a Kubernetes resource of that API version and kind; the group without a
/// name is written `core`. `type.googleapis.com/MESSAGE` is Istio's collection of these messages, or else one with the
/// name of the message. Anything else is itself the name of a collection, as in `AggregatedMeshConfigService`.
pub fn collection_of(type_url: &str) -> Collection {
    let parts: Vec<&str> = type_url.split('/').collect();
    match parts[..] {
        [_, message] => Collection::of_message(message).unwrap_or_else(|| Collection::new(message)),
        [CORE, version, kind] => Collection::of(version, &Kind::from(kind)),
        [group, version, kind] => Collection::of(&format!("{group}/{version}"), &Kind::from(kind)),
        _ => Collection::new(type_url),
    }
}

/// Returns the type URLs to request a collection by, the most likely first.
///
/// A source that has the resources in another version answers with an empty response and no error, and the next may have
/// another answer.
pub fn type_urls_of(collection: &Collection) -> Vec<String> {
    let name = collection.as_str();
    if let Some(resource) = name.strip_prefix(KUBERNETES) {
        let without_group = resource.matches('/').count() == 1;
        return vec![if without_group { format!("{CORE}/{resource}") } else { resource.to_owned() }];
    }
    match collection.kind() {
        Some(kind) => {
            let versions = collection.api_versions().into_iter();
            versions.map(|api_version| format!("{api_version}/{kind}")).collect()
        }
        None if name.contains('/') => vec![name.to_owned()],
        None => vec![format!("{HOST}{name}")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collection(type_url: &str) -> String {
        collection_of(type_url).as_str().to_owned()
    }

    #[test]
    fn what_istiod_asks_for_is_the_collection_of_that_api_version_and_kind() {
        assert_eq!(collection("config.istio.io/v1alpha2/rule"), "istio/policy/v1beta1/rules");
        assert_eq!(
            collection("config.istio.io/v1alpha2/listentry"),
            "istio/config/v1alpha2/legacy/listentries"
        );
        assert_eq!(collection("example.com/v1/Widget"), "k8s/example.com/v1/Widget");
        assert_eq!(collection("core/v1alpha1/MeshConfig"), "k8s/v1alpha1/MeshConfig");
    }

    #[test]
    fn a_message_is_mixers_collection_of_it_or_one_of_its_name() {
        assert_eq!(
            collection("type.googleapis.com/istio.policy.v1beta1.Handler"),
            "istio/policy/v1beta1/handlers"
        );
        let cluster = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        assert_eq!(collection(cluster), "envoy.config.cluster.v3.Cluster");
        assert_eq!(type_urls_of(&collection_of(cluster)), [cluster]);
    }

    #[test]
    fn every_collection_is_found_again_by_what_is_asked_for_it() {
        let legacy = Collection::of("", &Kind::from("denier"));
        let others = [
            "k8s/example.com/v1/Widget",
            "k8s/v1/Service",
            "envoy.config.cluster.v3.Cluster",
            "istio/mixer/v1/config/client/quotaspecs",
        ];
        let others = others.map(Collection::new);
        for collection in Collection::mixer().chain([legacy]).chain(others) {
            for type_url in type_urls_of(&collection) {
                assert_eq!(collection_of(&type_url), collection, "{type_url}");
            }
        }
    }

    #[test]
    fn mixers_kinds_have_one_type_url() {
        let rules = Collection::of("", &Kind::Rule);
        assert_eq!(type_urls_of(&rules), ["config.istio.io/v1alpha2/rule"]);
        let denier = Collection::of("", &Kind::from("denier"));
        assert_eq!(type_urls_of(&denier), ["config.istio.io/v1alpha2/denier"]);
    }

    /// istiod stores v1 from 1.24, v1alpha3 before.
    #[test]
    fn istios_kinds_are_asked_for_by_the_new_version_and_then_by_the_old() {
        for version in ["networking.istio.io/v1", "networking.istio.io/v1alpha3"] {
            let collection = Collection::of(version, &Kind::from("Gateway"));
            let both = ["networking.istio.io/v1/Gateway", "networking.istio.io/v1alpha3/Gateway"];
            assert_eq!(type_urls_of(&collection), both);
        }
        let old = Collection::of("security.istio.io/v1beta1", &Kind::from("PeerAuthentication"));
        let both =
            ["security.istio.io/v1/PeerAuthentication", "security.istio.io/v1beta1/PeerAuthentication"];
        assert_eq!(type_urls_of(&old), both);
        let message = collection_of("type.googleapis.com/istio.networking.v1alpha3.Gateway");
        assert_eq!(message.as_str(), "istio/networking/v1alpha3/gateways");
    }
}
