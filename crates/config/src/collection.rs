use std::{borrow::Cow, fmt};

use crate::{
    envoy::ENVOY_TYPES,
    istio::{GROUP, ISTIO, KnownKind, LEGACY, MIXER, VERSION},
    name::Kind,
};
use mixer_adapter_core::framework::suggest::suggest;
use serde_json::Value as Json;

/// The collection of the layers of the runtime, which is named by their message.
pub(super) const RUNTIME: &str = "envoy.service.runtime.v3.Runtime";

/// A collection of resources, `istio/policy/v1beta1/rules` (docs/behaviour/mcp.md#collections). Any text is valid:
/// sources also serve collections that are not Mixer's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Collection(Cow<'static, str>);

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or(api_version, |(group, _)| group)
}

/// Returns whether resources of this API version are for Mixer, as those without one are.
pub(super) fn is_mixers(api_version: &str) -> bool {
    let group = group_of(api_version);
    group.is_empty() || group == GROUP
}

/// Returns the correction of an API version that is close to Mixer's, or is another version of its group.
pub(super) fn meant_for_mixer(api_version: &str) -> Option<String> {
    let (group, version) = api_version.split_once('/').unwrap_or((api_version, ""));
    let mut labels = group.split('.').zip(GROUP.split('.'));
    // Labels are compared one by one: config.k8s.io and policy.istio.io are other groups.
    let close = (2..=3).contains(&group.split('.').count())
        && labels.by_ref().take(2).all(|(label, known)| suggest(label, [known]).is_some());
    let swapped = group == VERSION || version == GROUP;
    let right = group.is_empty() || (group == GROUP && version == VERSION);
    ((close || swapped) && !right).then(|| format!("{GROUP}/{VERSION}"))
}

/// Returns whether a resource of another group is meant for Mixer by its kind and the fields of its spec. Mixer's kinds
/// are in lower case, kinds of other groups usually are not: the case is ignored in Istio's groups only.
pub(super) fn resembles_mixers(api_version: &str, kind: &str, spec: &Json) -> bool {
    let of_istio = group_of(api_version).split('.').any(|label| label == "istio");
    let [is_rule, is_handler, is_instance] = [Kind::Rule, Kind::Handler, Kind::Instance].map(|known| {
        if of_istio { kind.eq_ignore_ascii_case(known.as_str()) } else { kind == known.as_str() }
    });
    let has = |field: &str| !spec[field].is_null();
    let mut actions = spec["actions"].as_array().into_iter().flatten();
    (is_rule && actions.any(|action| !action["handler"].is_null()))
        || (is_handler
            && (has("compiledAdapter")
                || has("compiled_adapter")
                || (has("adapter") && (has("params") || has("connection")))))
        || (is_instance
            && (has("compiledTemplate") || has("compiled_template") || (has("template") && has("params"))))
}

/// Returns the legacy kinds.
pub(super) fn legacy_kinds() -> impl Iterator<Item = &'static str> {
    LEGACY.iter().map(|known| known.kind)
}

impl Collection {
    /// Creates the collection of that name, or of the resources that are the message of that name; enclosing slashes
    /// are ignored.
    pub fn new(name: &str) -> Self {
        let name = name.trim_matches('/');
        let known = KnownKind::all().find(|known| known.collection == name).or_else(|| Self::by_kind(name));
        known
            .map(Self::of_known)
            .or_else(|| Self::of_message(name))
            .unwrap_or_else(|| Self(Cow::Owned(name.to_owned())))
    }

    /// Returns the kind of a collection that older documents name by it: `istio/networking/v1alpha3/VirtualService`.
    fn by_kind(name: &str) -> Option<&'static KnownKind> {
        let (directory, kind) = name.rsplit_once('/')?;
        KnownKind::all().find(|known| {
            let in_it = known.collection.rsplit_once('/').is_some_and(|(other, _)| other == directory);
            in_it && known.kind.eq_ignore_ascii_case(kind)
        })
    }

    fn of_known(known: &'static KnownKind) -> Self {
        Self(Cow::Borrowed(known.collection))
    }

    fn known(&self) -> Option<&'static KnownKind> {
        KnownKind::all().find(|known| known.collection == self.0)
    }

    /// Returns the name of a similar collection, if this one is not Mixer's, Istio's or Envoy's.
    pub fn similar(&self) -> Option<String> {
        let mut envoys = ENVOY_TYPES.iter().map(|known| known.message);
        if self.known().is_some() || envoys.any(|known| known == self.as_str()) {
            return None;
        }
        let by_message = self.is_of_messages();
        let names = KnownKind::all()
            .filter_map(|known| if by_message { known.message } else { Some(known.collection) })
            .chain(ENVOY_TYPES.iter().map(|known| known.message));
        suggest(self.as_str(), names).map(str::to_owned)
    }

    /// Logs a request for a collection whose name is probably misspelled.
    pub fn log_if_unknown(&self) {
        if let Some(similar) = self.similar() {
            tracing::warn!(
                collection = self.as_str(),
                "no known collection or type has this name; did you mean {similar}?"
            );
        }
    }

    /// Returns the collection of the layers of the runtime.
    pub fn runtime() -> Self {
        Self(Cow::Borrowed(RUNTIME))
    }

    /// Returns whether it is the collection of the layers of the runtime.
    pub fn is_runtime(&self) -> bool {
        self.as_str() == RUNTIME
    }

    /// Returns the six collections of Mixer's own kinds, in processing order.
    pub fn mixer() -> impl Iterator<Item = Self> {
        MIXER.iter().map(Self::of_known)
    }

    /// Returns the collections of Istio's kinds that Mixer does not use.
    pub fn istio() -> impl Iterator<Item = Self> {
        ISTIO.iter().map(Self::of_known)
    }

    /// Returns the collections of the kinds that are named after a template or an adapter, as in Istio 1.0.
    pub fn legacy_mixer() -> impl Iterator<Item = Self> {
        LEGACY.iter().map(Self::of_known)
    }

    /// Returns the collection of resources of this API version and kind. An empty API version is Mixer's own. Each
    /// other kind of Istio has one collection, whatever the version. Resources that are not Istio's are in
    /// `k8s/<apiVersion>/<kind>`.
    pub fn of(api_version: &str, kind: &Kind) -> Self {
        let group = group_of(api_version);
        let known = KnownKind::all().find(|known| {
            let in_group = known.group == group || (group.is_empty() && known.role.is_some());
            in_group && known.kind == kind.as_str()
        });
        known.map_or_else(|| Self(Cow::Owned(format!("k8s/{api_version}/{kind}"))), Self::of_known)
    }

    /// Returns the collection whose resources have this message as their spec, if it belongs to a kind of Istio.
    pub fn of_message(message: &str) -> Option<Self> {
        // Older documents write the package in this form.
        let alias = message.strip_prefix("istio.io.").map(|rest| format!("istio.{rest}"));
        let message = alias.as_deref().unwrap_or(message);
        KnownKind::all().find(|known| known.message == Some(message)).map(Self::of_known)
    }

    /// Returns the kind of the resources in this collection, if they are Istio's.
    pub fn kind(&self) -> Option<Kind> {
        self.known().map(|known| Kind::from(known.kind))
    }

    /// Returns the API versions of the stored resources of this collection, the newest first; none if they are not
    /// Istio's.
    pub fn api_versions(&self) -> Vec<String> {
        let Some(known) = self.known() else { return Vec::new() };
        known.versions.iter().map(|version| format!("{}/{version}", known.group)).collect()
    }

    /// Returns the message of specs in this collection, if it has one.
    pub fn message(&self) -> Option<&'static str> {
        self.known()?.message
    }

    /// Returns the kind of the resources for Mixer (legacy kinds as their successors); `None` if Mixer does not use
    /// them.
    pub fn role(&self) -> Option<Kind> {
        self.known()?.role.clone()
    }

    /// Returns whether it is named by the message of its resources, as Envoy's are: `envoy.config.cluster.v3.Cluster`.
    /// Names of such resources are any text without a namespace.
    pub fn is_of_messages(&self) -> bool {
        !self.0.contains('/')
    }

    /// Returns the name, `istio/policy/v1beta1/rules`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_collections_as_the_first_documents_of_mcp_write_them_are_understood() {
        for (written, meant) in [
            ("istio/networking/v1alpha3/VirtualService", "istio/networking/v1alpha3/virtualservices"),
            ("istio/policy/v1beta1/Rule", "istio/policy/v1beta1/rules"),
            ("istio/config/v1alpha2/legacy/denier", "istio/config/v1alpha2/legacy/deniers"),
            ("k8s/v1/Service", "k8s/v1/Service"),
            ("istio.networking.v1alpha3.VirtualService", "istio/networking/v1alpha3/virtualservices"),
            ("istio.io.networking.v1alpha3.VirtualService", "istio/networking/v1alpha3/virtualservices"),
        ] {
            let collection = Collection::new(written);
            assert_eq!((collection.as_str(), collection.similar()), (meant, None));
        }
    }

    #[test]
    fn an_unknown_collection_gets_a_hint() {
        let similar = |name: &str| Collection::new(name).similar();
        let hint = Some("istio/networking/v1alpha3/gateways".to_owned());
        assert_eq!(similar("istio/networking/v1alpha3/gatewais"), hint);
        assert_eq!(similar("istio.policy.v1beta1.Rul"), Some("istio.policy.v1beta1.Rule".to_owned()));
        assert_eq!(similar("istio/networking/v1alpha3/gateways"), None);
        assert_eq!(similar("k8s/example.com/v1/Widget"), None);
        let clusters = "envoy.config.cluster.v3.Cluster";
        assert_eq!(similar(clusters), None);
        assert_eq!(similar("envoy.config.cluster.v3.Clusters"), Some(clusters.to_owned()));
    }

    #[test]
    fn every_kind_of_mixer_has_its_collection_and_back() {
        for kind in Kind::ALL {
            let collection = Collection::of("config.istio.io/v1alpha2", &kind);
            assert_eq!(collection.kind(), Some(kind.clone()));
            assert_eq!(Collection::new(collection.as_str()), collection);
        }
        let rules = Collection::of("", &Kind::Rule);
        assert_eq!(rules.as_str(), "istio/policy/v1beta1/rules");
        assert_eq!(Collection::new("/istio/policy/v1beta1/rules/"), rules);
    }

    #[test]
    fn a_kind_named_after_a_template_is_an_instance_and_one_named_after_an_adapter_a_handler() {
        let entry = Collection::of("config.istio.io/v1alpha2", &Kind::from("listentry"));
        assert_eq!(entry.as_str(), "istio/config/v1alpha2/legacy/listentries");
        assert_eq!((entry.kind(), entry.role()), (Some(Kind::from("listentry")), Some(Kind::Instance)));
        let denier = Collection::new("istio/config/v1alpha2/legacy/deniers");
        assert_eq!((denier.kind(), denier.role()), (Some(Kind::from("denier")), Some(Kind::Handler)));
    }

    /// `istio/networking/v1alpha3/...` is what Galley 1.3 serves, whatever version the resources were written in.
    #[test]
    fn every_kind_of_istio_has_its_collection_and_back() {
        for (api_version, kind, name) in [
            ("networking.istio.io/v1", "ServiceEntry", "istio/networking/v1alpha3/serviceentries"),
            ("networking.istio.io/v1beta1", "VirtualService", "istio/networking/v1alpha3/virtualservices"),
            ("networking.istio.io/v1alpha3", "EnvoyFilter", "istio/networking/v1alpha3/envoyfilters"),
            ("authentication.istio.io/v1alpha1", "MeshPolicy", "istio/authentication/v1alpha1/meshpolicies"),
            ("rbac.istio.io/v1alpha1", "ClusterRbacConfig", "istio/rbac/v1alpha1/clusterrbacconfigs"),
            ("security.istio.io/v1", "AuthorizationPolicy", "istio/security/v1beta1/authorizationpolicies"),
            ("config.istio.io/v1alpha2", "HTTPAPISpec", "istio/config/v1alpha2/httpapispecs"),
            ("config.istio.io/v1alpha2", "QuotaSpec", "istio/mixer/v1/config/client/quotaspecs"),
        ] {
            let collection = Collection::of(api_version, &Kind::from(kind));
            assert_eq!((collection.as_str(), collection.role()), (name, None));
            assert_eq!(Collection::new(name).kind(), Some(Kind::from(kind)), "{name}");
            let versions = collection.api_versions();
            assert!(versions.iter().all(|version| Collection::of(version, &Kind::from(kind)) == collection));
            assert!(!versions.is_empty());
        }
        let gateways = Collection::new("istio/networking/v1alpha3/gateways");
        assert_eq!(gateways.api_versions(), ["networking.istio.io/v1", "networking.istio.io/v1alpha3"]);
        assert_eq!(gateways.message(), Some("istio.networking.v1alpha3.Gateway"));
        assert_eq!(Collection::of_message("istio.networking.v1alpha3.Gateway"), Some(gateways));
        let other = Collection::of("networking.k8s.io/v1", &Kind::from("Gateway"));
        assert_eq!((other.as_str(), other.kind()), ("k8s/networking.k8s.io/v1/Gateway", None));
    }

    #[test]
    fn a_kind_of_that_name_in_another_group_is_not_mixers() {
        let role = Collection::of("rbac.example.com/v1", &Kind::Rule);
        assert_eq!((role.as_str(), role.role()), ("k8s/rbac.example.com/v1/rule", None));
        assert_eq!(Collection::of("v1", &Kind::from("Service")).as_str(), "k8s/v1/Service");
    }
}
