//! The kinds of Istio, with the names of their collections and messages: the tables of Galley and Pilot
//! (docs/behaviour/mcp.md#collections and the collections that the recorded Galley serves).

use crate::name::Kind;

/// The API group of Mixer's configuration.
pub(super) const GROUP: &str = "config.istio.io";
/// The only version of the group.
pub(super) const VERSION: &str = "v1alpha2";

/// A kind of Istio's resources.
#[derive(Debug)]
pub(super) struct KnownKind {
    /// The collection, `istio/networking/v1alpha3/gateways`.
    pub collection: &'static str,
    /// The API group.
    pub group: &'static str,
    /// The versions of the group that have the kind, as its resources are stored: the newest first.
    pub versions: &'static [&'static str],
    pub kind: &'static str,
    /// The message that the spec is, if it is one.
    pub message: Option<&'static str>,
    /// The kind that the resources have for Mixer, if it uses them.
    pub role: Option<Kind>,
}

impl KnownKind {
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        MIXER.iter().chain(&ISTIO).chain(&LEGACY)
    }
}

const fn mixer(
    collection: &'static str,
    kind: &'static str,
    role: Kind,
    message: Option<&'static str>,
) -> KnownKind {
    KnownKind { collection, group: GROUP, versions: &[VERSION], kind, message, role: Some(role) }
}

/// Mixer's own kinds, in the order they are processed in.
pub(super) static MIXER: [KnownKind; 6] = [
    mixer(
        "istio/policy/v1beta1/attributemanifests",
        "attributemanifest",
        Kind::AttributeManifest,
        Some("istio.policy.v1beta1.AttributeManifest"),
    ),
    mixer("istio/config/v1alpha2/templates", "template", Kind::Template, None),
    mixer("istio/config/v1alpha2/adapters", "adapter", Kind::Adapter, None),
    mixer("istio/policy/v1beta1/handlers", "handler", Kind::Handler, Some("istio.policy.v1beta1.Handler")),
    mixer(
        "istio/policy/v1beta1/instances",
        "instance",
        Kind::Instance,
        Some("istio.policy.v1beta1.Instance"),
    ),
    mixer("istio/policy/v1beta1/rules", "rule", Kind::Rule, Some("istio.policy.v1beta1.Rule")),
];

/// The kinds of Istio 1.0 to 1.4 that are named after a template (then the resource is an instance) or an adapter (then it is a
/// handler).
pub(super) static LEGACY: [KnownKind; 31] = [
    mixer("istio/config/v1alpha2/legacy/apikeys", "apikey", Kind::Instance, None),
    mixer("istio/config/v1alpha2/legacy/authorizations", "authorization", Kind::Instance, None),
    mixer("istio/config/v1alpha2/legacy/checknothings", "checknothing", Kind::Instance, None),
    mixer("istio/config/v1alpha2/legacy/edges", "edge", Kind::Instance, None),
    mixer("istio/config/v1alpha2/legacy/kuberneteses", "kubernetes", Kind::Instance, None),
    mixer("istio/config/v1alpha2/legacy/listentries", "listentry", Kind::Instance, None),
    mixer("istio/config/v1alpha2/legacy/logentries", "logentry", Kind::Instance, None),
    mixer("istio/config/v1alpha2/legacy/metrics", "metric", Kind::Instance, None),
    mixer("istio/config/v1alpha2/legacy/quotas", "quota", Kind::Instance, None),
    mixer("istio/config/v1alpha2/legacy/reportnothings", "reportnothing", Kind::Instance, None),
    mixer("istio/config/v1alpha2/legacy/tracespans", "tracespan", Kind::Instance, None),
    mixer("istio/config/v1alpha2/legacy/bypasses", "bypass", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/circonuses", "circonus", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/cloudwatches", "cloudwatch", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/deniers", "denier", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/dogstatsds", "dogstatsd", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/fluentds", "fluentd", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/kubernetesenvs", "kubernetesenv", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/listcheckers", "listchecker", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/memquotas", "memquota", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/noops", "noop", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/opas", "opa", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/prometheuses", "prometheus", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/rbacs", "rbac", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/redisquotas", "redisquota", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/signalfxs", "signalfx", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/solarwindses", "solarwinds", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/stackdrivers", "stackdriver", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/statsds", "statsd", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/stdios", "stdio", Kind::Handler, None),
    mixer("istio/config/v1alpha2/legacy/zipkins", "zipkin", Kind::Handler, None),
];

macro_rules! kinds {
    ($($group:literal, $versions:expr, [$($collection:literal $kind:literal $message:literal,)*];)*) => {
        /// The kinds that Mixer does not use.
        pub(super) static ISTIO: [KnownKind; 24] = [$($(KnownKind {
            collection: $collection,
            group: $group,
            versions: &$versions,
            kind: $kind,
            message: Some($message),
            role: None,
        },)*)*];
    };
}

kinds! {
    "networking.istio.io", ["v1", "v1alpha3"], [
        "istio/networking/v1alpha3/destinationrules" "DestinationRule" "istio.networking.v1alpha3.DestinationRule",
        "istio/networking/v1alpha3/gateways" "Gateway" "istio.networking.v1alpha3.Gateway",
        "istio/networking/v1alpha3/serviceentries" "ServiceEntry" "istio.networking.v1alpha3.ServiceEntry",
        "istio/networking/v1alpha3/sidecars" "Sidecar" "istio.networking.v1alpha3.Sidecar",
        "istio/networking/v1alpha3/virtualservices" "VirtualService" "istio.networking.v1alpha3.VirtualService",
        "istio/networking/v1alpha3/workloadentries" "WorkloadEntry" "istio.networking.v1alpha3.WorkloadEntry",
        "istio/networking/v1alpha3/workloadgroups" "WorkloadGroup" "istio.networking.v1alpha3.WorkloadGroup",
    ];
    "networking.istio.io", ["v1alpha3"], [
        "istio/networking/v1alpha3/envoyfilters" "EnvoyFilter" "istio.networking.v1alpha3.EnvoyFilter",
    ];
    "networking.istio.io", ["v1beta1"], [
        "istio/networking/v1beta1/proxyconfigs" "ProxyConfig" "istio.networking.v1beta1.ProxyConfig",
    ];
    "security.istio.io", ["v1", "v1beta1"], [
        "istio/security/v1beta1/authorizationpolicies" "AuthorizationPolicy" "istio.security.v1beta1.AuthorizationPolicy",
        "istio/security/v1beta1/peerauthentications" "PeerAuthentication" "istio.security.v1beta1.PeerAuthentication",
        "istio/security/v1beta1/requestauthentications" "RequestAuthentication" "istio.security.v1beta1.RequestAuthentication",
    ];
    "telemetry.istio.io", ["v1", "v1alpha1"], [
        "istio/telemetry/v1alpha1/telemetries" "Telemetry" "istio.telemetry.v1alpha1.Telemetry",
    ];
    "extensions.istio.io", ["v1alpha1"], [
        "istio/extensions/v1alpha1/wasmplugins" "WasmPlugin" "istio.extensions.v1alpha1.WasmPlugin",
    ];
    "authentication.istio.io", ["v1alpha1"], [
        "istio/authentication/v1alpha1/policies" "Policy" "istio.authentication.v1alpha1.Policy",
        "istio/authentication/v1alpha1/meshpolicies" "MeshPolicy" "istio.authentication.v1alpha1.Policy",
    ];
    "rbac.istio.io", ["v1alpha1"], [
        "istio/rbac/v1alpha1/rbacconfigs" "RbacConfig" "istio.rbac.v1alpha1.RbacConfig",
        "istio/rbac/v1alpha1/clusterrbacconfigs" "ClusterRbacConfig" "istio.rbac.v1alpha1.RbacConfig",
        "istio/rbac/v1alpha1/servicerolebindings" "ServiceRoleBinding" "istio.rbac.v1alpha1.ServiceRoleBinding",
        "istio/rbac/v1alpha1/serviceroles" "ServiceRole" "istio.rbac.v1alpha1.ServiceRole",
    ];
    "config.istio.io", ["v1alpha2"], [
        "istio/config/v1alpha2/httpapispecbindings" "HTTPAPISpecBinding" "istio.mixer.v1.config.client.HTTPAPISpecBinding",
        "istio/config/v1alpha2/httpapispecs" "HTTPAPISpec" "istio.mixer.v1.config.client.HTTPAPISpec",
        "istio/mixer/v1/config/client/quotaspecbindings" "QuotaSpecBinding" "istio.mixer.v1.config.client.QuotaSpecBinding",
        "istio/mixer/v1/config/client/quotaspecs" "QuotaSpec" "istio.mixer.v1.config.client.QuotaSpec",
    ];
}
