use futures_util::FutureExt as _;
use http::uri::PathAndQuery;
use tokio_util::sync::CancellationToken;

use super::{delta_messages::Delta, node::XdsClient, sotw_messages::Sotw, versions::Versions};
use crate::{
    stream::{
        peer::Peer,
        redial::DialOptions,
        sink::{
            connect::connect,
            dialect::Variant,
            driver::Sink,
            exchange::{call, exchange},
        },
    },
    xds::{READS_WRAPPER, SUPPORTS_TTL},
};

/// The version of Envoy's API in requests to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApiVersion {
    /// `envoy.service.discovery.v2`.
    V2,
    /// `envoy.service.discovery.v3`.
    #[default]
    V3,
}

impl ApiVersion {
    /// Returns the path of a method of the `AggregatedDiscoveryService`.
    pub(crate) fn path(self, variant: Variant) -> PathAndQuery {
        PathAndQuery::from_static(match (self, variant) {
            (Self::V2, Variant::Sotw) => {
                "/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources"
            }
            (Self::V2, Variant::Delta) => {
                "/envoy.service.discovery.v2.AggregatedDiscoveryService/DeltaAggregatedResources"
            }
            (Self::V3, Variant::Sotw) => {
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
            }
            (Self::V3, Variant::Delta) => {
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
            }
        })
    }
}

/// Keeps a sink connected to the `AggregatedDiscoveryService` of a peer, until `stop` is cancelled.
pub async fn dial(
    sink: Sink,
    server: Peer,
    (version, variant): (ApiVersion, Variant),
    client: impl Into<XdsClient>,
    options: DialOptions,
    stop: CancellationToken,
) {
    let mut client = client.into();
    client.node.client_features.push(SUPPORTS_TTL.to_owned());
    if variant == Variant::Sotw {
        client.node.client_features.push(READS_WRAPPER[0].to_owned());
    }
    let (versions, path) = (Versions::default(), version.path(variant));
    connect(sink, server, options, stop, move |stream, requests, grpc| {
        let (client, path) = (client.clone(), path.clone());
        match variant {
            Variant::Sotw => {
                exchange(stream, requests, Sotw::new(client), |requests| call(grpc, path, requests)).boxed()
            }
            Variant::Delta => {
                let dialect = Delta::new(client, versions.clone());
                exchange(stream, requests, dialect, |requests| call(grpc, path, requests)).boxed()
            }
        }
    })
    .await;
}
