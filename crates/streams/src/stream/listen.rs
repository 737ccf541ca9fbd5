use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::response::IntoResponse as _;
use futures_util::{
    FutureExt as _,
    future::BoxFuture,
    stream::{self, Stream},
};
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, body::Body, service::Routes, transport::server::TcpConnectInfo};
use tower_service::Service;

use super::{admission::ConnectionStreams, keepalive::Keepalive};
use mixer_adapter_core::framework::settings;
use mixer_adapter_net::{
    Connection, ConnectionLimits, Listener, Protocol, Workers,
    grpc::{StreamLimits, StreamMemory, StreamService},
    max_open_files, tls,
};

settings! {
    /// The limits of a port for configuration.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct ListenOptions {
        /// Pings on connections.
        keepalive: Keepalive = Keepalive::default(),
        /// The longest message of all services in bytes.
        max_message_size: usize = 64 << 20,
        /// The memory of messages that arrive or are decoded, and of the buffers of streams.
        memory: StreamMemory = StreamMemory::new(192 << 20),
    }
}

/// How long a message may take to arrive after its first byte.
pub(crate) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the limits of connections to a source or a sink.
fn connection_limits(keepalive: Keepalive) -> ConnectionLimits {
    ConnectionLimits {
        // gRPC, and REST for clients without HTTP/2.
        protocol: Protocol::Http1OrHttp2 {
            header_timeout: Duration::from_secs(30),
            max_streams: 100,
            keepalive: Some(keepalive.interval),
            keepalive_timeout: keepalive.timeout,
        },
        max_connections: 10_000.min(max_open_files() / 2),
        max_connections_per_peer: None,
        handshake_timeout: Duration::from_secs(10),
        write_timeout: Duration::from_secs(30),
        max_age: None,
        grace: Duration::from_millis(500),
        long_answers: true,
    }
}

/// Serves configuration on a separate port until `stop` is cancelled. Ended streams are answered in full, others are
/// cut off: their clients reconnect, possibly to another replica.
pub async fn listen(listener: impl Into<Listener>, services: Routes, stop: CancellationToken) {
    listen_with(listener, services, ListenOptions::default(), stop).await;
}

/// Like [`listen`], with other limits.
pub async fn listen_with(
    listener: impl Into<Listener>,
    services: Routes,
    options: ListenOptions,
    stop: CancellationToken,
) {
    let listener = listener.into();
    let tls = listener.tls().cloned();
    let ListenOptions { keepalive, max_message_size, memory } = options;
    let limits = StreamLimits { max_message_size, memory, message_timeout: MESSAGE_TIMEOUT };
    let services = Routes::from(services.into_axum_router().fallback(unknown_path)).prepare();
    let limited = StreamService::new(&limits, services.clone());
    listener
        .serve(
            connection_limits(keepalive),
            &Workers::here(),
            move |connection: &Connection| PeerService {
                limited: limited.on_connection(connection),
                services: services.clone(),
                guard: tls.clone().map(|tls| (tls, connection.identity.clone())),
                address: TcpConnectInfo { local_addr: connection.local, remote_addr: connection.remote },
                connection: connection.clone(),
                streams: ConnectionStreams::default(),
            },
            stop,
        )
        .await;
}

/// Answers a request for a path that nothing is served on, in the protocol of the request.
async fn unknown_path(request: http::Request<axum::body::Body>) -> axum::response::Response {
    if is_grpc(request.headers()) {
        return Status::unimplemented("no such method is served here").into_http();
    }
    let text = "nothing is served on this path; gRPC, and REST at POST /v3/discovery:NAME, are\n";
    (StatusCode::NOT_FOUND, text).into_response()
}

/// Whether a path belongs to REST, which limits its requests itself.
fn is_rest(path: &str) -> bool {
    ["/v2/", "/v3/"].iter().any(|prefix| path.starts_with(prefix))
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// The services for one peer: checks that it may open streams, and names it to them.
#[derive(Clone)]
struct PeerService {
    /// The services with the limits for gRPC, whatever the request says of its content. REST has its own.
    limited: StreamService<Routes>,
    services: Routes,
    guard: Option<(Arc<tls::Server>, Option<tls::Identity>)>,
    address: TcpConnectInfo,
    connection: Connection,
    streams: ConnectionStreams,
}

impl Service<http::Request<Incoming>> for PeerService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Incoming>) -> Self::Future {
        let PeerService { mut limited, mut services, guard, address, connection, streams } = self.clone();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(address);
        request.extensions_mut().insert(streams);
        let answer = async move {
            if let Some((tls, identity)) = guard {
                // By the current list; open streams go on (docs/behaviour/mcp.md#access-lists).
                if let Some(access) = tls.access()
                    && let Err(refusal) = access.check(identity.as_ref())
                {
                    return Ok(refusal.into_http());
                }
                if let Some(identity) = identity {
                    request.extensions_mut().insert(identity);
                }
            }
            let response = if is_rest(request.uri().path()) {
                services.call(request).await?
            } else {
                limited.call(request).await?.map(Body::new)
            };
            // A refusal has its status in the headers.
            if is_grpc(response.headers()) && !response.headers().contains_key(Status::GRPC_STATUS) {
                // Its stream may be silent for as long as nothing changes.
                connection.keep();
            }
            Ok(response)
        };
        answer.boxed()
    }
}

/// The peer that sent a request, for logs and status pages: its address, and the first name in its certificate.
pub(crate) fn peer_name<T>(request: &Request<T>) -> String {
    let address = request.remote_addr().map_or_else(|| "unknown".to_owned(), |address| address.to_string());
    let name = request.extensions().get::<tls::Identity>().and_then(|identity| identity.names().first());
    match name {
        Some(name) => format!("{address} ({name})"),
        None => address,
    }
}

/// A channel's receiver as a stream.
pub(crate) fn outbox<T>(mut channel: mpsc::Receiver<T>) -> impl Stream<Item = T> + Send
where
    T: Send,
{
    stream::poll_fn(move |context| channel.poll_recv(context))
}
