//! The life cycle of a sink's streams, for any protocol.

use futures_util::{FutureExt as _, future::BoxFuture};
use mixer_adapter_net::grpc::StreamClient;
use tokio_util::sync::CancellationToken;
use tonic::{Status, client::Grpc};

use super::driver::{self, Sink};
use crate::stream::{
    peer::{Peer, PeerChannel},
    redial::{DialOptions, Ended, redial},
};

/// A connection to the server of a stream.
pub(crate) type Client = Grpc<StreamClient<PeerChannel>>;

/// Keeps a sink connected to a peer until `stop` is cancelled. `run` exchanges the messages of one stream, and returns the
/// reason of its end.
pub(crate) async fn connect(
    sink: Sink,
    source: Peer,
    options: DialOptions,
    stop: CancellationToken,
    run: impl Fn(driver::Stream, driver::Requests, Client) -> BoxFuture<'static, Status>
    + Clone
    + Send
    + Sync
    + 'static,
) {
    let dial = options.clone();
    let stream = |stop: CancellationToken| {
        let (sink, source, dial, run) = (sink.clone(), source.clone(), dial.clone(), run.clone());
        async move {
            let connected = tokio::select! {
                connected = source.connect() => connected,
                () = stop.cancelled() => return Ended::in_vain(Status::cancelled("")),
            };
            match connected {
                Ok(channel) => {
                    let client =
                        Grpc::new(dial.limited(channel)).max_decoding_message_size(dial.max_message_size);
                    with_stream(sink, source.to_string(), stop, |stream, requests| {
                        run(stream, requests, client)
                    })
                    .await
                }
                Err(status) => {
                    sink.health().failed(&status);
                    Ended::in_vain(status)
                }
            }
        }
        .boxed()
    };
    source.watching(redial(&source, &options, stop, stream)).await;
}

/// Runs one stream with a peer of that name, over any transport, to its end.
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
    stream.trace().ended(&status);
    // Drops the requests as well, which ends the stream for its source.
    let closed = stream.closed(Some(status.clone())).await;
    Ended { status, good: closed.good, resolved: closed.unsupported.is_some() }
}
