use std::{
    future::pending,
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use tokio::sync::mpsc::{self, error::TrySendError};
use tonic::{Status, Streaming};

use super::{
    dialect::Dialect,
    driver::{Requests, Stream},
};

/// Requests that wait for the transport.
const UNREAD: usize = 128;

/// The requests of a stream.
pub(crate) struct Outgoing<T>(mpsc::Receiver<T>);

impl<T> futures_util::Stream for Outgoing<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}

/// A call that opens a stream.
pub(crate) type Call<Response> = BoxFuture<'static, Result<tonic::Response<Streaming<Response>>, Status>>;

/// Runs one stream of a sink in another dialect, until it ends. `call` opens it with its requests.
pub(crate) async fn exchange<D: Dialect>(
    stream: Stream,
    mut requests: Requests,
    mut dialect: D,
    call: impl FnOnce(Outgoing<D::Request>) -> Call<D::Response>,
) -> Status {
    let (requests_out, outgoing) = mpsc::channel(UNREAD);
    let mut call = call(Outgoing(outgoing));
    let mut responses: Option<Streaming<D::Response>> = None;
    loop {
        let request = async {
            // Requests beyond it wait in the sink, which ends the stream of a server that does not read.
            let _room = requests_out.reserve().await;
            requests.recv().await
        };
        let opening = responses.is_none();
        let response = async {
            match &mut responses {
                Some(responses) => responses.message().await,
                None => pending().await,
            }
        };
        let replies = tokio::select! {
            opened = &mut call, if opening => match opened {
                Ok(response) => {
                    tracing::info!(metadata = ?response.metadata(), "connected to configuration server");
                    responses = Some(response.into_inner());
                    continue;
                }
                Err(status) => return status,
            },
            request = request => match request {
                Some(Ok(request)) => dialect.on_request(request),
                Some(Err(status)) => return status,
                None => return Status::aborted("the sink is gone"),
            },
            response = response => match response {
                Ok(Some(response)) => {
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
                Ok(None) => return Status::ok("the server ended it"),
                Err(status) => return status,
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
