use std::future::ready;

use futures_util::{FutureExt as _, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{
    proto::istio::mcp::v1alpha1::resource_source_client::ResourceSourceClient,
    stream::{
        listen::outbox,
        peer::{Peer, PeerChannel},
        redial::{DialOptions, redial},
        sink::{
            connect::connected,
            driver::{self, Sink},
        },
    },
};

/// Keeps a sink connected to the `ResourceSource` of a peer, until `stop` is cancelled.
pub async fn dial(sink: Sink, source: Peer, options: DialOptions, stop: CancellationToken) {
    let dial = options.clone();
    let run = move |stream, channel, requests| exchange(stream, channel, requests, dial);
    source
        .watching(redial(&source, &options, stop, |stop| {
            connected(sink.clone(), source.clone(), stop, run.clone()).boxed()
        }))
        .await;
}

async fn exchange(
    stream: driver::Stream,
    channel: PeerChannel,
    requests: driver::Requests,
    options: DialOptions,
) -> Status {
    let client = ResourceSourceClient::new(options.limited(channel));
    let mut client = client.max_decoding_message_size(options.max_message_size);
    // Sources may send nothing, not even headers, before the first request.
    let trace = stream.trace().clone();
    let requests = outbox(requests).filter_map(move |request| {
        let request = request.ok();
        request.iter().for_each(|request| trace.sent(request));
        ready(request)
    });
    let response = match client.establish_resource_stream(requests).await {
        Ok(response) => response,
        Err(status) => return status,
    };
    tracing::info!("connected to configuration source");
    let mut pushes = response.into_inner();
    loop {
        match pushes.message().await {
            Ok(Some(push)) => {
                stream.trace().received(&push);
                stream.received(push).await;
            }
            Ok(None) => return Status::ok("the source ended it"),
            Err(status) => return status,
        }
    }
}
