use std::future::ready;

use futures_util::{FutureExt as _, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::{Status, transport::Channel};

use super::{Sink, driver};
use crate::{
    mcp::{
        DialOptions, Peer,
        listen::outbox,
        redial::{Ended, redial},
    },
    proto::istio::mcp::v1alpha1::resource_source_client::ResourceSourceClient,
};

/// Keeps a sink connected to the `ResourceSource` of a peer, until `stop` is cancelled.
pub async fn dial(sink: Sink, source: Peer, options: DialOptions, stop: CancellationToken) {
    let max_message_size = options.max_message_size;
    let run = move |stream, channel, requests| exchange(stream, channel, requests, max_message_size);
    let stream = |stop| connected(sink.clone(), source.clone(), stop, run).boxed();
    source.watching(redial(&source, &options, stop, stream)).await;
}

/// One stream, from connecting to its end. `run` speaks on it, and says why it ended.
pub(crate) async fn connected<F: Future<Output = Status>>(
    sink: Sink,
    source: Peer,
    stop: CancellationToken,
    run: impl FnOnce(driver::Stream, Channel, driver::Requests) -> F,
) -> Ended {
    let channel = tokio::select! {
        connected = source.connect() => match connected {
            Ok(channel) => channel,
            Err(status) => return Ended::in_vain(status),
        },
        () = stop.cancelled() => return Ended::in_vain(Status::cancelled("")),
    };
    let peer = source.to_string();
    with_stream(sink, peer, stop, |stream, requests| run(stream, channel, requests)).await
}

/// One stream with a peer of that name, however it is reached, to its end.
pub(crate) async fn with_stream<F: Future<Output = Status>>(
    sink: Sink,
    peer: String,
    stop: CancellationToken,
    run: impl FnOnce(driver::Stream, driver::Requests) -> F,
) -> Ended {
    let (stream, requests) = sink.open(peer).await;
    let status = tokio::select! {
        status = run(stream.clone(), requests) => status,
        () = stream.ended.cancelled() => Status::aborted("the sink ended it"),
        () = stop.cancelled() => Status::cancelled("the sink is not to dial any more"),
    };
    // Lets go of the requests too, which ends the stream for its source.
    let closed = stream.closed(Some(status.clone())).await;
    Ended { status, good: closed.good, resolved: closed.unsupported.is_some() }
}

async fn exchange(
    stream: driver::Stream,
    channel: Channel,
    requests: driver::Requests,
    max_message_size: usize,
) -> Status {
    let mut client = ResourceSourceClient::new(channel).max_decoding_message_size(max_message_size);
    // Sources may send nothing, not even headers, before they are asked.
    let requests = outbox(requests).filter_map(|request| ready(request.ok()));
    let response = match client.establish_resource_stream(requests).await {
        Ok(response) => response,
        Err(status) => return status,
    };
    tracing::info!(metadata = ?response.metadata(), "connected to configuration source");
    let mut pushes = response.into_inner();
    loop {
        match pushes.message().await {
            Ok(Some(push)) => stream.received(push).await,
            Ok(None) => return Status::ok("the source ended it"),
            Err(status) => return status,
        }
    }
}
