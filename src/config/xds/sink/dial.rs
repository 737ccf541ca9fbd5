use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::{Delta, StateOfTheWorld, Versions, exchange::exchange};
use crate::{
    config::mcp::{
        DialOptions, Peer,
        redial::redial,
        sink::{
            Mode, Sink,
            dial::connected,
            driver::{Requests, Stream},
        },
    },
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
    },
};

/// How a server of xDS is spoken to. The sink has to be of the same [mode](Self::mode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Whole sets.
    StateOfTheWorld,
    /// Changes.
    Delta,
}

impl Form {
    /// How a sink is to ask that speaks so.
    pub fn mode(self) -> Mode {
        match self {
            Self::StateOfTheWorld => Mode::Full,
            Self::Delta => Mode::Delta,
        }
    }
}

/// Keeps a sink connected to the `AggregatedDiscoveryService` of a peer, until told to stop.
pub async fn dial(
    sink: Sink,
    server: Peer,
    form: Form,
    node: Node,
    options: DialOptions,
    stop: CancellationToken,
) {
    let max_message_size = options.max_message_size;
    let versions = Versions::default();
    let stream = |stop| {
        let (node, versions) = (node.clone(), versions.clone());
        let speak = move |stream: Stream, channel: Channel, requests: Requests| {
            let client = AggregatedDiscoveryServiceClient::new(channel);
            let mut client = client.max_decoding_message_size(max_message_size);
            match form {
                Form::StateOfTheWorld => {
                    let dialect = StateOfTheWorld::new(node);
                    let call =
                        |requests| async move { client.stream_aggregated_resources(requests).await }.boxed();
                    exchange(stream, requests, dialect, call).boxed()
                }
                Form::Delta => {
                    let dialect = Delta::new(node, versions);
                    let call =
                        |requests| async move { client.delta_aggregated_resources(requests).await }.boxed();
                    exchange(stream, requests, dialect, call).boxed()
                }
            }
        };
        connected(sink.clone(), server.clone(), stop, speak).boxed()
    };
    server.watching(redial(&server, &options, stop, stream)).await;
}
