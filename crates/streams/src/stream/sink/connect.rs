//! The life cycle of a sink's stream, for any protocol.

use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::driver::{self, Sink};
use crate::stream::{
    peer::{Peer, PeerChannel},
    redial::Ended,
};

/// Runs one stream, from connecting to its end. `run` exchanges its messages, and returns the reason of its end.
pub(crate) async fn connected<F: Future<Output = Status>>(
    sink: Sink,
    source: Peer,
    stop: CancellationToken,
    run: impl FnOnce(driver::Stream, PeerChannel, driver::Requests) -> F,
) -> Ended {
    let channel = tokio::select! {
        connected = source.connect() => match connected {
            Ok(channel) => channel,
            Err(status) => {
                sink.health().failed(&status);
                return Ended::in_vain(status);
            }
        },
        () = stop.cancelled() => return Ended::in_vain(Status::cancelled("")),
    };
    let peer = source.to_string();
    with_stream(sink, peer, stop, |stream, requests| run(stream, channel, requests)).await
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
