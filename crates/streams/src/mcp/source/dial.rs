use std::future::ready;

use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::stream::{McpStream, TRIGGER};
use crate::{
    proto::istio::mcp::v1alpha1::{Resources, resource_sink_client::ResourceSinkClient},
    stream::{
        listen::outbox,
        peer::Peer,
        redial::{DialOptions, Ended, redial},
        source::{
            driver::{ConfigServer, ExchangeLimits},
            pushed::Pushed,
        },
    },
};

/// Keeps a source connected to the `ResourceSink` of a peer, until `stop` is cancelled.
pub async fn dial(source: ConfigServer, sink: Peer, options: DialOptions, stop: CancellationToken) {
    sink.watching(redial(&sink, &options, stop, |stop: CancellationToken| {
        let stream = stream(source.clone(), sink.clone(), options.clone());
        async move {
            tokio::select! {
                ended = stream => ended,
                () = stop.cancelled() => Ended::in_vain(Status::cancelled("")),
            }
        }
        .boxed()
    }))
    .await;
}

/// Runs one stream, from connecting to its end.
async fn stream(source: ConfigServer, sink: Peer, options: DialOptions) -> Ended {
    let channel = match sink.connect().await {
        Ok(channel) => channel,
        Err(status) => return Ended::in_vain(status),
    };
    let client = ResourceSinkClient::new(options.limited(channel));
    let mut client = client.max_decoding_message_size(options.max_message_size);
    let (pushes, outgoing) = mpsc::channel(1);
    let requests = match client.establish_resource_stream(triggered(outgoing)).await {
        Ok(response) => response.into_inner(),
        Err(status) => return Ended::in_vain(status),
    };
    let machine = McpStream::new(source.options.incremental);
    let limits = ExchangeLimits { requests: source.options.requests, memory: None, admitted: None };
    source.exchange(machine, sink.to_string(), requests, pushes, limits).await
}

/// Returns the messages for the sink. The first is the trigger: a sink that accepts connections may wait for it before
/// it requests.
fn triggered(
    pushes: mpsc::Receiver<Result<Pushed<Resources>, Status>>,
) -> impl Stream<Item = Resources> + Send + 'static {
    let trigger = Resources { collection: TRIGGER.to_owned(), ..Resources::default() };
    futures_util::stream::iter([trigger])
        .chain(outbox(pushes).filter_map(|push| ready(push.ok().and_then(|push| push.into_message().ok()))))
}
