use futures_util::FutureExt as _;
use http::uri::PathAndQuery;
use tokio_util::sync::CancellationToken;

use crate::{
    mcp::source::METHOD,
    proto::istio::mcp::v1alpha1::{RequestResources, Resources},
    stream::{
        peer::Peer,
        redial::DialOptions,
        sink::{
            connect::connect,
            dialect::{Dialect, Received},
            driver::Sink,
            exchange::{call, exchange},
        },
    },
};

/// The protocol of the sink itself.
struct Mcp;

impl Dialect for Mcp {
    type Request = RequestResources;
    type Response = Resources;

    fn on_request(&mut self, request: RequestResources) -> Vec<RequestResources> {
        vec![request]
    }

    fn on_response(&mut self, push: Resources) -> Received<RequestResources> {
        Received::push(push)
    }
}

/// Keeps a sink connected to the `ResourceSource` of a peer, until `stop` is cancelled.
pub async fn dial(sink: Sink, source: Peer, options: DialOptions, stop: CancellationToken) {
    connect(sink, source, options, stop, |stream, requests, client| {
        let path = PathAndQuery::from_static(METHOD);
        exchange(stream, requests, Mcp, |requests| call(client, path, requests)).boxed()
    })
    .await;
}
