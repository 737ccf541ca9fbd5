//! Sinks that take what comes and keep nothing.

use std::net::SocketAddr;

use futures_util::{StreamExt as _, stream};
use mixer_adapter::prost::Message;
use mixer_adapter_streams::proto::{
    envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse,
        aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
    },
    istio::mcp::v1alpha1::{RequestResources, Resources, resource_source_client::ResourceSourceClient},
};
use tokio::sync::mpsc;
use tonic::{Streaming, transport::Channel};

use crate::served::{COLLECTION, TYPE_URL};

/// How a sink asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    McpFull,
    McpIncremental,
    XdsDelta,
}

/// The longest frame that sinks of this program accept, in bytes.
pub(crate) const FRAME: u32 = 256 << 10;
/// The longest frame that Envoy and gRPC for Go accept.
pub(crate) const SHORT_FRAME: u32 = 16 << 10;

pub(crate) enum Client {
    Mcp { incremental: bool, up: mpsc::Sender<RequestResources>, down: Streaming<Resources> },
    Xds { up: mpsc::Sender<DeltaDiscoveryRequest>, down: Streaming<DeltaDiscoveryResponse> },
}

impl Client {
    pub(crate) async fn dial(address: SocketAddr, protocol: Protocol, frame: u32) -> Self {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap();
        let channel = channel.tcp_nodelay(true).max_frame_size(frame).connect().await.unwrap();
        match protocol {
            Protocol::McpFull | Protocol::McpIncremental => {
                let incremental = protocol == Protocol::McpIncremental;
                let (up, requests) = outgoing(asks(incremental, String::new()));
                let client = ResourceSourceClient::new(channel).max_decoding_message_size(usize::MAX);
                let down = { client }.establish_resource_stream(requests).await.unwrap().into_inner();
                Self::Mcp { incremental, up, down }
            }
            Protocol::XdsDelta => {
                let first = DeltaDiscoveryRequest { type_url: TYPE_URL.to_owned(), ..Default::default() };
                let (up, requests) = outgoing(first);
                let client =
                    AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(usize::MAX);
                let down = { client }.delta_aggregated_resources(requests).await.unwrap().into_inner();
                Self::Xds { up, down }
            }
        }
    }

    /// Takes the next push; the result is how many resources it has, and its length in bytes.
    pub(crate) async fn take(&mut self) -> (usize, usize) {
        match self {
            Self::Mcp { incremental, up, down } => {
                let push = down.message().await.unwrap().unwrap();
                let taken = (push.resources.len(), push.encoded_len());
                up.send(asks(*incremental, push.nonce)).await.unwrap();
                taken
            }
            Self::Xds { up, down } => {
                let push = down.message().await.unwrap().unwrap();
                let taken = (push.resources.len(), push.encoded_len());
                let (type_url, response_nonce) = (push.type_url, push.nonce);
                up.send(DeltaDiscoveryRequest { type_url, response_nonce, ..Default::default() })
                    .await
                    .unwrap();
                taken
            }
        }
    }
}

fn asks(incremental: bool, response_nonce: String) -> RequestResources {
    RequestResources { collection: COLLECTION.to_owned(), response_nonce, incremental, ..Default::default() }
}

fn outgoing<T: Send + 'static>(first: T) -> (mpsc::Sender<T>, impl stream::Stream<Item = T> + Send) {
    let (up, mut requests) = mpsc::channel(4);
    up.try_send(first).ok().unwrap();
    (up, stream::poll_fn(move |context| requests.poll_recv(context)).boxed())
}
