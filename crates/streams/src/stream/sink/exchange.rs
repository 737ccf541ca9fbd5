use futures_util::{StreamExt as _, TryFutureExt as _, stream::BoxStream};
use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::mpsc::{self, error::TrySendError};
use tonic::Status;

use super::{
    connect::Client,
    dialect::Dialect,
    driver::{Requests, Stream},
};
use crate::stream::{listen::outbox, peer::open};

/// Requests that wait for the transport.
const UNREAD: usize = 128;

/// The responses of a server, in the order of their arrival.
pub(crate) type Responses<R> = BoxStream<'static, Result<R, Status>>;

/// Returns the responses of a method of gRPC.
pub(crate) fn call<Q: Message + 'static, R: Message + Default + 'static>(
    client: Client,
    path: PathAndQuery,
    requests: BoxStream<'static, Q>,
) -> Responses<R> {
    let opened = open(client, path, requests).map_ok(|response| {
        tracing::info!(metadata = ?response.metadata(), "connected to configuration server");
        response.into_inner()
    });
    opened.try_flatten_stream().boxed()
}

/// Runs one stream of a sink in some dialect, over any transport, until it ends. `open` opens it with its requests.
pub(crate) async fn exchange<D: Dialect>(
    stream: Stream,
    mut requests: Requests,
    mut dialect: D,
    open: impl FnOnce(BoxStream<'static, D::Request>) -> Responses<D::Response>,
) -> Status {
    let (requests_out, outgoing) = mpsc::channel(UNREAD);
    let mut responses = open(outbox(outgoing).boxed());
    loop {
        let request = async {
            // Requests beyond it wait in the sink, which ends the stream of a server that does not read.
            let _room = requests_out.reserve().await;
            requests.recv().await
        };
        let replies = tokio::select! {
            request = request => match request {
                Some(Ok(request)) => dialect.on_request(request),
                Some(Err(status)) => return status,
                None => return Status::aborted("the sink is gone"),
            },
            response = responses.next() => match response {
                Some(Ok(response)) => {
                    stream.trace().received(&response);
                    let received = dialect.on_response(response);
                    if let Some(push) = received.push {
                        stream.received(push).await;
                    }
                    if let Some((collection, lifetimes)) = received.lifetimes {
                        stream.renewed(collection, lifetimes).await;
                    }
                    received.replies
                }
                Some(Err(status)) => return status,
                None => return Status::ok("the server ended it"),
            },
        };
        for reply in replies {
            stream.trace().sent(&reply);
            match requests_out.try_send(reply) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => {
                    return Status::resource_exhausted("the server does not read what the sink says");
                }
                // The call has ended, and will return the reason.
                Err(TrySendError::Closed(_)) => {}
            }
        }
    }
}
