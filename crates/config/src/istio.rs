//! The kinds of Istio that Mixer does not use, with the names of their collections and messages: the tables of Galley
//! and Pilot (docs/behaviour/mcp.md#collections and the collections that the recorded Galley serves).

/// A kind of Istio's resources.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Istio {
    /// The collection, `istio/networking/v1alpha3/gateways`.
    pub collection: &'static str,
    /// The API group.
    pub group: &'static str,
    /// The versions of the group that have the kind, as its resources are stored: the newest first.
    pub versions: &'static [&'static str],
    pub kind: &'static str,
    /// The message that the spec is.
    pub message: &'static str,
}

macro_rules! kinds {
    ($($group:literal, $versions:expr, [$($collection:literal $kind:literal $message:literal,)*];)*) => {
        const KINDS: &[Istio] = &[$($(
            Istio { collection: $collection, group: $group, versions: &$versions, kind: $kind, message: $message },
        )*)*];
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

impl Istio {
    /// The kind of an API group, whatever the version.
    pub(super) fn of(api_version: &str, kind: &str) -> Option<&'static Self> {
        let group = api_version.split_once('/').map_or(api_version, |(group, _)| group);
        KINDS.iter().find(|known| known.group == group && known.kind == kind)
    }

    /// The collections of all kinds.
    pub(super) fn collections() -> impl Iterator<Item = &'static str> {
        KINDS.iter().map(|known| known.collection)
    }

    /// The kind of a collection's resources.
    pub(super) fn in_collection(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|known| known.collection == name)
    }

    /// The kind whose spec is that message; the first where there are several.
    pub(super) fn of_message(message: &str) -> Option<&'static Self> {
        KINDS.iter().find(|known| known.message == message)
    }
}
