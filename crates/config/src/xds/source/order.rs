//! Envoy's types: in which order they go out, and what leaving a resource out means
//! (docs/behaviour/xds.md#rule-5-what-a-missing-resource-means and docs/behaviour/xds.md#rule-8-order).

use crate::envoy_v2;

/// The place of a type in make-before-break order: what is referred to comes before what refers to it.
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
    /// Refers to nothing, and nothing to it.
    Other,
}

/// What is known of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::xds) struct Traits {
    pub(super) rank: Rank,
    /// Whether an answer of the state of the world holds all that is wanted, and deletes the rest. Of other types it holds what is
    /// new; they go when what refers to them does.
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

/// What is known of the type of that URL. Types that are not Envoy's are whole: istiod and its clients take them so
/// (docs/behaviour/xds.md#istiod-as-a-source).
pub(in crate::xds) fn traits(type_url: &str) -> Traits {
    let message = type_url.rsplit('/').next().unwrap_or_default();
    let message = envoy_v2::successor(message).unwrap_or(message);
    let known = TYPES.iter().find(|(name, ..)| *name == message);
    known.map_or(Traits { rank: Rank::Other, whole: true }, |&(_, rank, whole)| Traits { rank, whole })
}

impl Rank {
    /// Whether news of this wait for news of what comes before.
    pub(super) fn is_ordered(self) -> bool {
        self != Self::Other
    }

    /// Whether it must not go before what refers to it was replaced.
    pub(super) fn is_referred_to(self) -> bool {
        self <= Self::Endpoint
    }

    /// Whether it refers to clusters.
    pub(super) fn refers(self) -> bool {
        (Self::Listener..=Self::VirtualHost).contains(&self)
    }
}
