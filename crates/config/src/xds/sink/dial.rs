use std::time::Duration;

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::{Delta, RESYNC, Sotw, Versions, aggregated, exchange::exchange};
use crate::{
    mcp::{
        DialOptions, Peer,
        redial::redial,
        sink::{
            Mode, Sink,
            dial::connected,
            driver::{Requests, Stream},
        },
    },
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
        istio::mcp::v1alpha1::aggregated_mesh_config_service_client::AggregatedMeshConfigServiceClient,
    },
};

/// The protocol variant of an xDS server. The sink needs the same [mode](Self::mode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// State of the world: every push holds all resources.
    Sotw,
    /// Incremental: pushes hold changes.
    Delta,
    /// State of the world, in the protocol before MCP: `AggregatedMeshConfigService`.
    Aggregated,
    /// Incremental, in the protocol before MCP.
    AggregatedDelta,
}

impl Variant {
    /// The subscription mode that this variant uses.
    pub fn mode(self) -> Mode {
        match self {
            Self::Sotw | Self::Aggregated => Mode::Full,
            Self::Delta | Self::AggregatedDelta => Mode::Delta,
        }
    }

    /// The interval at which a sink requests everything again; `None` does not.
    pub fn resync(self) -> Option<Duration> {
        match self {
            Self::Sotw | Self::Delta => Some(RESYNC),
            Self::Aggregated | Self::AggregatedDelta => None,
        }
    }
}

/// Keeps a sink connected to the `AggregatedDiscoveryService`, or `AggregatedMeshConfigService`, of a peer, until `stop` is cancelled.
pub async fn dial(
    sink: Sink,
    server: Peer,
    variant: Variant,
    node: Node,
    options: DialOptions,
    stop: CancellationToken,
) {
    let versions = Versions::default();
    let longest = options.max_message_size;
    let xds =
        move |channel| AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(longest);
    let before =
        move |channel| AggregatedMeshConfigServiceClient::new(channel).max_decoding_message_size(longest);
    let speak = move |stream: Stream, channel: Channel, requests: Requests| match variant {
        Variant::Sotw => {
            let mut client = xds(channel);
            let call = |requests| async move { client.stream_aggregated_resources(requests).await }.boxed();
            exchange(stream, requests, Sotw::new(node.clone()), call).boxed()
        }
        Variant::Delta => {
            let mut client = xds(channel);
            let call = |requests| async move { client.delta_aggregated_resources(requests).await }.boxed();
            exchange(stream, requests, Delta::new(node.clone(), versions.clone()), call).boxed()
        }
        Variant::Aggregated => aggregated::exchange_whole(before(channel), stream, requests).boxed(),
        Variant::AggregatedDelta => aggregated::exchange_deltas(before(channel), stream, requests).boxed(),
    };
    let stream = |stop| {
        let speak = speak.clone();
        connected(sink.clone(), server.clone(), stop, speak).boxed()
    };
    server.watching(redial(&server, &options, stop, stream)).await;
}
