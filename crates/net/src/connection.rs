use std::{error::Error, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::{random, tls};

/// The HTTP version of a port, with the limits that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1 {
        /// How long the head of a request may take to arrive.
        header_timeout: Duration,
    },
    /// HTTP/2 with prior knowledge, or by ALPN over TLS.
    Http2 {
        /// Requests at a time on one connection; further ones wait in the client.
        max_streams: u32,
        /// Interval of pings on an idle connection; `None` sends none.
        keepalive: Option<Duration>,
        /// How long the answer to a ping may take.
        keepalive_timeout: Duration,
    },
}

/// Limits on the connections of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The HTTP version and its limits.
    pub protocol: Protocol,
    /// Connections at a time; further ones wait to be accepted.
    pub max_connections: usize,
    /// Age at which a connection is drained, less up to a tenth at random, so that clients move on to other replicas; `None` keeps
    /// connections.
    pub max_age: Option<Duration>,
    /// How long requests in flight may take to finish on a connection that is drained.
    pub grace: Duration,
}

/// An accepted connection, as the services on it see it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Connection {
    /// Number of the connection, from 1, unique on its port.
    pub id: u64,
    /// Our address.
    pub local: Option<SocketAddr>,
    /// The peer's address.
    pub remote: Option<SocketAddr>,
    /// The identity in the peer's certificate; `None` without TLS or without a certificate.
    pub identity: Option<tls::Identity>,
}

impl Connection {
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

/// Serves requests on one stream until the peer ends it, its age drains it, or `stop` does.
pub(crate) async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    id: u64,
    limits: &ConnectionLimits,
    service: impl HttpService,
    stop: &CancellationToken,
) {
    let http = limits.protocol.builder();
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)));
    let aged = async {
        match limits.max_age {
            Some(age) => tokio::time::sleep(age.mul_f64(1.0 - 0.1 * random())).await,
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => Ok(ended),
        () = aged => Err(()),
        () = stop.cancelled() => Err(()),
    };
    let ended = match ended {
        Ok(ended) => Ok(ended),
        Err(()) => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout_at(Instant::now() + limits.grace, connection).await
        }
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(connection = id, error, "connection broken"),
        Err(_) => {
            tracing::debug!(connection = id, grace = ?limits.grace, "connection cut off with requests in flight");
        }
    }
}

impl Protocol {
    fn builder(self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        match self {
            Self::Http1 { header_timeout } => {
                builder.http1().timer(TokioTimer::new()).header_read_timeout(header_timeout);
                builder.http1_only()
            }
            Self::Http2 { max_streams, keepalive, keepalive_timeout } => {
                builder
                    .http2()
                    .timer(TokioTimer::new())
                    .max_concurrent_streams(max_streams)
                    .auto_date_header(false)
                    .keep_alive_interval(keepalive)
                    .keep_alive_timeout(keepalive_timeout);
                builder.http2_only()
            }
        }
    }
}
