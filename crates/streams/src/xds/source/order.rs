//! The order of Envoy's types in pushes, and the meaning of a missing resource
//! (docs/behaviour/xds.md#rule-5-what-a-missing-resource-means and docs/behaviour/xds.md#rule-8-order).

use mixer_adapter_config::envoy;

/// The rank of a type in make-before-break order: referenced types come before the types that refer to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Cluster,
    Endpoint,
    Listener,
    Route,
    ScopedRoute,
    VirtualHost,
    Secret,
    Runtime,
    ExtensionConfig,
    /// It refers to nothing, and nothing refers to it.
    Other,
}

/// The properties of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::xds) struct Traits {
    pub(super) rank: Rank,
    /// Whether a response of the state of the world contains all subscribed resources, and deletes the rest. For other
    /// types it contains new resources only; they are removed with the resources that refer to them.
    pub(in crate::xds) whole: bool,
}

const TYPES: [(&str, Rank, bool); 9] = [
    ("envoy.config.cluster.v3.Cluster", Rank::Cluster, true),
    ("envoy.config.endpoint.v3.ClusterLoadAssignment", Rank::Endpoint, false),
    ("envoy.config.listener.v3.Listener", Rank::Listener, true),
    ("envoy.config.route.v3.RouteConfiguration", Rank::Route, false),
    ("envoy.config.route.v3.ScopedRouteConfiguration", Rank::ScopedRoute, true),
    ("envoy.config.route.v3.VirtualHost", Rank::VirtualHost, false),
    ("envoy.extensions.transport_sockets.tls.v3.Secret", Rank::Secret, false),
    ("envoy.service.runtime.v3.Runtime", Rank::Runtime, false),
    ("envoy.config.core.v3.TypedExtensionConfig", Rank::ExtensionConfig, false),
];

/// Returns the properties of the type of that URL. Types that are not Envoy's are complete: istiod and its clients
/// treat them so (docs/behaviour/xds.md#istiod-as-a-source).
pub(in crate::xds) fn traits(type_url: &str) -> Traits {
    let message = type_url.rsplit('/').next().unwrap_or_default();
    let message = envoy::successor(message).unwrap_or(message);
    let known = TYPES.iter().find(|(name, ..)| *name == message);
    known.map_or(Traits { rank: Rank::Other, whole: true }, |&(_, rank, whole)| Traits { rank, whole })
}

impl Rank {
    /// Returns whether its changes wait for changes of types before it.
    pub(super) fn is_ordered(self) -> bool {
        self != Self::Other
    }

    /// Returns whether it must not be removed before the resources that refer to it are replaced.
    pub(super) fn is_referred_to(self) -> bool {
        self <= Self::Endpoint
    }

    /// Returns whether it refers to clusters.
    pub(super) fn refers(self) -> bool {
        (Self::Listener..=Self::VirtualHost).contains(&self)
    }
}
