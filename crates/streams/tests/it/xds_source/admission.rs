//! The rate of new streams.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::stream;
use mixer_adapter_net::Rate;
use mixer_adapter_streams::{
    proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
    stream::source::ConfigServerOptions, xds::source as xds,
};
use tonic::{Status, transport::Channel};

use super::{messages::*, sockets::Server};

/// Opens a stream without an end of its requests.
async fn open(channel: Channel) -> Result<(), Status> {
    let requests = futures_util::StreamExt::chain(stream::iter([ask(CLUSTER, "")]), stream::pending());
    AggregatedDiscoveryServiceClient::new(channel).stream_aggregated_resources(requests).await.map(drop)
}

#[tokio::test]
async fn streams_that_wait_on_one_connection_neither_delay_nor_exclude_those_of_others() {
    let limits = xds::default_options()
        .max_streams(50)
        .new_streams(Rate { burst: 1, every: Duration::from_millis(100) });
    let server = Server::start_limited(ConfigServerOptions::default(), limits).await;
    let busy = server.channel().await;
    let admitted = Arc::new(AtomicUsize::new(0));
    for _ in 0..90 {
        let (busy, admitted) = (busy.clone(), admitted.clone());
        tokio::spawn(async move {
            if open(busy).await.is_ok() {
                admitted.fetch_add(1, SeqCst);
            }
        });
    }
    let first = async {
        while admitted.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    };
    first.await;
    for _ in 0..3 {
        open(server.channel().await).await.unwrap();
    }
    assert!(admitted.load(SeqCst) < 25, "{admitted:?}");
}
