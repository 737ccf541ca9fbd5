use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::{Delta, Sotw, Versions};
use crate::{
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
    },
    stream::{
        DialOptions, Peer,
        redial::redial,
        sink::{
            Sink, Variant,
            connect::connected,
            driver::{Requests, Stream},
            exchange::exchange,
        },
    },
};

/// Keeps a sink connected to the `AggregatedDiscoveryService` of a peer, until `stop` is cancelled.
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
    let run = move |stream: Stream, channel: Channel, requests: Requests| {
        let mut client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(longest);
        match variant {
            Variant::Sotw => {
                let call =
                    |requests| async move { client.stream_aggregated_resources(requests).await }.boxed();
                exchange(stream, requests, Sotw::new(node.clone()), call).boxed()
            }
            Variant::Delta => {
                let call =
                    |requests| async move { client.delta_aggregated_resources(requests).await }.boxed();
                exchange(stream, requests, Delta::new(node.clone(), versions.clone()), call).boxed()
            }
        }
    };
    let stream = |stop| connected(sink.clone(), server.clone(), stop, run.clone()).boxed();
    server.watching(redial(&server, &options, stop, stream)).await;
}
