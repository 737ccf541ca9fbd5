use std::{error::Error, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::{
    AnswerBody, Limit, connections::ConnectionState, frame_limit::FrameLimitStream, random, socket::Unread,
    tls, turn::Turn,
};

/// The HTTP version of a port, with the limits that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// HTTP/1.1.
    Http1 {
        /// How long the head of a request may take to arrive.
        header_timeout: Duration,
    },
    /// HTTP/2 with prior knowledge, or by ALPN over TLS.
    Http2 {
        /// The most requests at a time on one connection; further ones wait in the client. A connection that opens while there are more
        /// than 64 others has a smaller share of 65,536, but at least 64.
        max_streams: u32,
        /// Interval of pings on an idle connection; `None` sends none.
        keepalive: Option<Duration>,
        /// How long the answer to a ping may take.
        keepalive_timeout: Duration,
    },
    /// Either, distinguished by the preface of HTTP/2.
    Http1OrHttp2 {
        /// As of [`Http1`](Self::Http1).
        header_timeout: Duration,
        /// As of [`Http2`](Self::Http2).
        max_streams: u32,
        /// As of [`Http2`](Self::Http2).
        keepalive: Option<Duration>,
        /// As of [`Http2`](Self::Http2).
        keepalive_timeout: Duration,
    },
}

/// Limits on the connections of one port, which decides all of them (docs/decisions/0016-open-and-closed-types.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The HTTP version and its limits.
    pub protocol: Protocol,
    /// Connections at a time. Beyond them, idle connections are closed for new ones, which wait if none is idle.
    pub max_connections: usize,
    /// Connections at a time from one IP address; further ones are closed. `None` sets no limit.
    pub max_connections_per_peer: Option<usize>,
    /// How long the TLS handshake and then the HTTP/2 preface may take to arrive.
    pub handshake_timeout: Duration,
    /// How long the peer may take to read an answer; its connection is cut off then, or up to half this time later.
    pub write_timeout: Duration,
    /// Age at which a connection is drained, less up to a tenth at random, so that clients move on to other replicas; `None` keeps
    /// connections.
    pub max_age: Option<Duration>,
    /// How long requests in flight may take to finish on a connection that is drained.
    pub grace: Duration,
    /// Whether most answers have more than 1 KiB. Others are copied, and written with those of other requests.
    pub long_answers: bool,
}

/// An accepted connection, as the services on it see it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Connection {
    /// Number of the connection, from 1, unique on its port.
    pub id: u64,
    /// Our address; `None` for a Unix socket.
    pub local: Option<SocketAddr>,
    /// The peer's address; `None` for a Unix socket.
    pub remote: Option<SocketAddr>,
    /// The identity in the peer's certificate; `None` without TLS or without a certificate.
    pub identity: Option<tls::Identity>,
    pub(crate) state: Arc<ConnectionState>,
}

impl Connection {
    /// Keeps the connection from giving way to new ones while nothing is called on it: it has a session, or a stream. At most half of
    /// the connections are, those with the latest calls and messages.
    pub fn keep(&self) {
        self.state.keep();
    }

    /// Returns the body of an answer whose parts count as unwritten until they are: [`ConnectionLimits::write_timeout`] limits that
    /// time. The unary calls of [`UnaryService`](crate::grpc::UnaryService) count by themselves.
    pub fn until_written<B>(&self, body: B) -> AnswerBody<B> {
        AnswerBody::new(body, self.state.clone())
    }

    /// Returns the first name in the peer's certificate.
    pub(crate) fn peer(&self) -> Option<Arc<str>> {
        self.identity.as_ref()?.names().first().map(|name| Arc::from(name.as_str()))
    }
}

/// A tower service that answers HTTP requests on a connection. Implemented for every service of the right shape.
pub trait HttpService:
    Service<
        Request<Incoming>,
        Response = Response<Self::Body>,
        Error = Self::ServiceError,
        Future = Self::Answer,
    > + Clone
    + Send
    + 'static
{
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
    /// The error that ends the connection in place of an answer.
    type ServiceError: Into<BoxError>;
    /// The future of an answer.
    type Answer: Future<Output = Result<Response<Self::Body>, Self::ServiceError>> + Send + 'static;
}

type BoxError = Box<dyn Error + Send + Sync>;

impl<S, B> HttpService for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<BoxError>, Future: Send + 'static>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;
    type ServiceError = S::Error;
    type Answer = S::Future;
}

/// The longest head of an HTTP/1.1 request in bytes, which is buffered until it is complete.
const MAX_HTTP1_HEAD: usize = 64 << 10;

/// How long an idle connection that is evicted may take to end.
const EVICTION_GRACE: Duration = Duration::from_secs(1);

/// Serves requests on one stream until the peer ends it, its age drains it, it is evicted, or `stop` is cancelled.
pub(crate) async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unread + Unpin + 'static,
    state: &Arc<ConnectionState>,
    id: u64,
    limits: &ConnectionLimits,
    service: impl HttpService,
    stop: &CancellationToken,
) {
    if matches!(limits.protocol, Protocol::Http1 { .. }) {
        state.set_greeted();
    }
    let turn = Turn::default();
    let http = limits.protocol.builder(turn.clone(), state.max_begun);
    let stream = TokioIo::new(FrameLimitStream::new(turn.stream(stream), state.clone(), limits.long_answers));
    let connection = http.serve_connection(stream, TowerToHyperService::new(service));
    let served = async {
        let mut connection = pin!(connection);
        let aged = async {
            match limits.max_age {
                Some(age) => tokio::time::sleep(age.mul_f64(1.0 - 0.1 * random())).await,
                None => std::future::pending().await,
            }
        };
        let no_preface = async {
            tokio::time::sleep(limits.handshake_timeout).await;
            if state.is_greeted() {
                std::future::pending::<()>().await;
            }
        };
        let ended = tokio::select! {
            ended = connection.as_mut() => Ok(ended),
            () = aged => Err(limits.grace),
            () = stop.cancelled() => Err(limits.grace),
            () = state.drain.cancelled() => Err(EVICTION_GRACE.min(limits.grace)),
            () = state.cut.cancelled() => Err(Duration::ZERO),
            () = no_preface => {
                state.hit(Limit::HandshakeTimeout);
                Err(Duration::ZERO)
            }
        };
        let ended = match ended {
            Ok(ended) => Some(ended),
            // There is nothing to wait for.
            Err(_) if !state.is_greeted() => None,
            Err(grace) if grace.is_zero() => None,
            Err(grace) => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection => Some(ended),
                    () = tokio::time::sleep(grace) => None,
                    () = state.cut.cancelled() => None,
                }
            }
        };
        match ended {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::debug!(connection = id, error, "connection broken"),
            None => tracing::debug!(connection = id, "connection cut off"),
        }
    };
    turn.serve(served, state.worker()).await;
}

impl Protocol {
    /// Returns what serves a connection whose tasks `turn` runs, with at most that many requests at a time.
    fn builder(self, turn: Turn, max_requests: usize) -> Builder<Turn> {
        let mut builder = Builder::new(turn);
        if let Self::Http1 { header_timeout } | Self::Http1OrHttp2 { header_timeout, .. } = self {
            builder
                .http1()
                .timer(TokioTimer::new())
                .header_read_timeout(header_timeout)
                .max_buf_size(MAX_HTTP1_HEAD);
        }
        if let Self::Http2 { max_streams, keepalive, keepalive_timeout }
        | Self::Http1OrHttp2 { max_streams, keepalive, keepalive_timeout, .. } = self
        {
            builder
                .http2()
                .timer(TokioTimer::new())
                .max_concurrent_streams(max_streams.min(u32::try_from(max_requests).unwrap_or(u32::MAX)))
                .auto_date_header(false)
                .keep_alive_interval(keepalive)
                .keep_alive_timeout(keepalive_timeout);
        }
        match self {
            Self::Http1 { .. } => builder.http1_only(),
            Self::Http2 { .. } => builder.http2_only(),
            Self::Http1OrHttp2 { .. } => builder,
        }
    }
}
