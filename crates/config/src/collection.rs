use std::{borrow::Cow, fmt};

use crate::{envoy::ENVOY_TYPES, istio::Istio, name::Kind};
use mixer_adapter_core::framework::suggest::suggest;
use serde_json::Value as Json;

/// The collection of the layers of the runtime, which is named by their message.
pub(super) const RUNTIME: &str = "envoy.service.runtime.v3.Runtime";
/// The API group of Mixer's configuration.
const GROUP: &str = "config.istio.io";
/// The only version of the group.
const VERSION: &str = "v1alpha2";

/// A collection of resources, `istio/policy/v1beta1/rules` (docs/behaviour/mcp.md#collections). Any text is valid:
/// sources also serve collections that are not Mixer's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Collection(Cow<'static, str>);

const COLLECTIONS: [(&str, Kind); 6] = [
    ("istio/policy/v1beta1/attributemanifests", Kind::AttributeManifest),
    ("istio/config/v1alpha2/templates", Kind::Template),
    ("istio/config/v1alpha2/adapters", Kind::Adapter),
    ("istio/policy/v1beta1/handlers", Kind::Handler),
    ("istio/policy/v1beta1/instances", Kind::Instance),
    ("istio/policy/v1beta1/rules", Kind::Rule),
];

/// The kinds of Istio 1.0 to 1.4 that are named after a template (then the resource is an instance) or an adapter (then it is a
/// handler), and their collections under `istio/config/v1alpha2/legacy/`.
const LEGACY: [(&str, &str, Kind); 31] = [
    ("apikey", "apikeys", Kind::Instance),
    ("authorization", "authorizations", Kind::Instance),
    ("checknothing", "checknothings", Kind::Instance),
    ("edge", "edges", Kind::Instance),
    ("kubernetes", "kuberneteses", Kind::Instance),
    ("listentry", "listentries", Kind::Instance),
    ("logentry", "logentries", Kind::Instance),
    ("metric", "metrics", Kind::Instance),
    ("quota", "quotas", Kind::Instance),
    ("reportnothing", "reportnothings", Kind::Instance),
    ("tracespan", "tracespans", Kind::Instance),
    ("bypass", "bypasses", Kind::Handler),
    ("circonus", "circonuses", Kind::Handler),
    ("cloudwatch", "cloudwatches", Kind::Handler),
    ("denier", "deniers", Kind::Handler),
    ("dogstatsd", "dogstatsds", Kind::Handler),
    ("fluentd", "fluentds", Kind::Handler),
    ("kubernetesenv", "kubernetesenvs", Kind::Handler),
    ("listchecker", "listcheckers", Kind::Handler),
    ("memquota", "memquotas", Kind::Handler),
    ("noop", "noops", Kind::Handler),
    ("opa", "opas", Kind::Handler),
    ("prometheus", "prometheuses", Kind::Handler),
    ("rbac", "rbacs", Kind::Handler),
    ("redisquota", "redisquotas", Kind::Handler),
    ("signalfx", "signalfxs", Kind::Handler),
    ("solarwinds", "solarwindses", Kind::Handler),
    ("stackdriver", "stackdrivers", Kind::Handler),
    ("statsd", "statsds", Kind::Handler),
    ("stdio", "stdios", Kind::Handler),
    ("zipkin", "zipkins", Kind::Handler),
];
const LEGACY_PREFIX: &str = "istio/config/v1alpha2/legacy/";

/// Returns whether resources of this API version are for Mixer, as those without one are.
pub(super) fn is_mixers(api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or(api_version, |(group, _)| group);
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
    let group = api_version.split_once('/').map_or(api_version, |(group, _)| group);
    let of_istio = group.split('.').any(|label| label == "istio");
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
    LEGACY.iter().map(|(kind, ..)| *kind)
}

impl Collection {
    /// Creates the collection of that name, or of the resources that are the message of that name; enclosing slashes
    /// are ignored.
    pub fn new(name: &str) -> Self {
        let name = name.trim_matches('/');
        match COLLECTIONS.iter().find(|(known, _)| *known == name) {
            Some((known, _)) => Self(Cow::Borrowed(known)),
            None => match Istio::in_collection(name) {
                Some(known) => Self(Cow::Borrowed(known.collection)),
                None => Self::of_kind(name)
                    .or_else(|| Self::of_message(name))
                    .unwrap_or_else(|| Self(Cow::Owned(name.to_owned()))),
            },
        }
    }

    /// Returns the collection that older documents name by the kind of its resources:
    /// `istio/networking/v1alpha3/VirtualService`.
    fn of_kind(name: &str) -> Option<Self> {
        let (directory, kind) = name.rsplit_once('/')?;
        Self::known().find(|collection| {
            let in_it = collection.as_str().rsplit_once('/').is_some_and(|(other, _)| other == directory);
            in_it && collection.kind().is_some_and(|known| known.as_str().eq_ignore_ascii_case(kind))
        })
    }

    /// Returns all collections of Mixer and of Istio.
    fn known() -> impl Iterator<Item = Self> {
        Self::mixer().chain(Self::istio()).chain(Self::legacy_mixer())
    }

    /// Returns the name of a similar collection, if this one is not Mixer's, Istio's or Envoy's.
    pub fn similar(&self) -> Option<String> {
        let envoys = ENVOY_TYPES.iter().map(|known| known.message);
        if self.kind().is_some() || envoys.clone().any(|known| known == self.as_str()) {
            return None;
        }
        let names = Self::known().filter_map(|known| {
            if self.is_of_messages() {
                known.message().map(str::to_owned)
            } else {
                Some(known.as_str().to_owned())
            }
        });
        let names: Vec<String> = names.collect();
        suggest(self.as_str(), names.iter().map(String::as_str).chain(envoys)).map(str::to_owned)
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
        COLLECTIONS.iter().map(|(name, _)| Self(Cow::Borrowed(name)))
    }

    /// Returns the collections of Istio's kinds that Mixer does not use.
    pub fn istio() -> impl Iterator<Item = Self> {
        Istio::collections().map(|name| Self(Cow::Borrowed(name)))
    }

    /// Returns the collections of the kinds that are named after a template or an adapter, as in Istio 1.0.
    pub fn legacy_mixer() -> impl Iterator<Item = Self> {
        LEGACY.iter().map(|(_, plural, _)| Self(Cow::Owned(format!("{LEGACY_PREFIX}{plural}"))))
    }

    /// Returns the collection of resources of this API version and kind. An empty API version is Mixer's own. Each
    /// other kind of Istio has one collection, whatever the version. Resources that are not Istio's are in
    /// `k8s/<apiVersion>/<kind>`.
    pub fn of(api_version: &str, kind: &Kind) -> Self {
        if is_mixers(api_version) {
            if let Some((name, _)) = COLLECTIONS.iter().find(|(_, known)| known == kind) {
                return Self(Cow::Borrowed(name));
            }
            if let Some((_, plural, _)) = LEGACY.iter().find(|(legacy, ..)| *legacy == kind.as_str()) {
                return Self(Cow::Owned(format!("{LEGACY_PREFIX}{plural}")));
            }
        }
        if let Some(known) = Istio::of(api_version, kind.as_str()) {
            return Self(Cow::Borrowed(known.collection));
        }
        Self(Cow::Owned(format!("k8s/{api_version}/{kind}")))
    }

    /// Returns the collection whose resources have this message as their spec, if it belongs to a kind of Istio.
    pub fn of_message(message: &str) -> Option<Self> {
        // Older documents write the package in this form.
        let alias = message.strip_prefix("istio.io.").map(|rest| format!("istio.{rest}"));
        let message = alias.as_deref().unwrap_or(message);
        Self::mixer()
            .find(|collection| collection.message() == Some(message))
            .or_else(|| Istio::of_message(message).map(|known| Self(Cow::Borrowed(known.collection))))
    }

    /// Returns the kind of the resources in this collection, if they are Istio's.
    pub fn kind(&self) -> Option<Kind> {
        match (self.legacy(), Istio::in_collection(&self.0)) {
            (Some((kind, ..)), _) => Some(Kind::from(*kind)),
            (None, Some(known)) => Some(Kind::from(known.kind)),
            (None, None) => self.role(),
        }
    }

    /// Returns the API versions of the stored resources of this collection, the newest first; none if they are not
    /// Istio's.
    pub fn api_versions(&self) -> Vec<String> {
        match Istio::in_collection(&self.0) {
            Some(known) => {
                known.versions.iter().map(|version| format!("{}/{version}", known.group)).collect()
            }
            None => self.role().map(|_| format!("{GROUP}/v1alpha2")).into_iter().collect(),
        }
    }

    /// Returns the message of specs in this collection, if it has one.
    pub fn message(&self) -> Option<&'static str> {
        if let Some(known) = Istio::in_collection(&self.0) {
            return Some(known.message);
        }
        match self.legacy().is_none().then(|| self.role())?? {
            Kind::AttributeManifest => Some("istio.policy.v1beta1.AttributeManifest"),
            Kind::Handler => Some("istio.policy.v1beta1.Handler"),
            Kind::Instance => Some("istio.policy.v1beta1.Instance"),
            Kind::Rule => Some("istio.policy.v1beta1.Rule"),
            Kind::Template | Kind::Adapter | Kind::Other(_) => None,
        }
    }

    /// Returns the kind of the resources for Mixer (legacy kinds as their successors); `None` if Mixer does not use
    /// them.
    pub fn role(&self) -> Option<Kind> {
        let known = COLLECTIONS.iter().find(|(name, _)| *name == self.0).map(|(_, kind)| kind);
        known.or_else(|| self.legacy().map(|(_, _, role)| role)).cloned()
    }

    fn legacy(&self) -> Option<&'static (&'static str, &'static str, Kind)> {
        let plural = self.0.strip_prefix(LEGACY_PREFIX)?;
        LEGACY.iter().find(|(_, known, _)| *known == plural)
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
