//! HTTP clients that keep their connections.

use std::{
    error::Error as _,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::rt::Executor;
use hyper_util::{
    client::legacy::{
        self, Builder, Client,
        connect::{Connected, Connection},
    },
    rt::{TokioIo, TokioTimer},
};
use tokio::runtime::Handle;
use tower_service::Service;

use crate::http_client::{HttpClient, HttpError, HttpStream, with_user_agent};

/// The maximum number of idle connections to a host.
const MAX_IDLE: usize = 8;

/// The time after which an idle connection is closed.
const IDLE: Duration = Duration::from_secs(30);

/// The time between pings on a connection of HTTP/2, and how long one may take.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time to connect. A connection may be established after its request was sent on another one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An [`HttpClient`] that keeps its connections for further requests to their hosts: up to 8 idle ones to each, for 30 s. They are
/// closed with the last clone.
#[derive(Clone, Debug)]
pub struct HttpPool {
    limits: HttpClient,
    client: Client<Dialer, Full<Bytes>>,
}

impl HttpPool {
    /// Creates a client with the settings of `client`, whose connections run on `runtime`.
    pub fn new(client: HttpClient, runtime: Handle) -> Self {
        Self::build(client, "http/1.1", &builder(runtime))
    }

    /// Creates a client of HTTP/2, without an upgrade from HTTP/1.1, which has one connection to a host.
    pub fn http2(client: HttpClient, runtime: Handle) -> Self {
        let mut builder = builder(runtime);
        builder.http2_only(true).timer(TokioTimer::new());
        // A server that is gone without a trace is noticed.
        builder.http2_keep_alive_interval(PING_INTERVAL).http2_keep_alive_timeout(PING_TIMEOUT);
        Self::build(client, "h2", &builder)
    }

    fn build(client: HttpClient, protocol: &'static str, builder: &Builder) -> Self {
        let pooled = builder.build(Dialer { client: client.clone(), protocol });
        Self { limits: client, client: pooled }
    }

    /// Sends a request as [`HttpClient::send`] does, within `timeout`. With `may_repeat` it is sent once more if its connection is
    /// lost before an answer begins.
    ///
    /// # Errors
    /// See [`HttpError`]. An answer of any status is not an error.
    pub async fn send(
        &self,
        request: Request<Bytes>,
        timeout: Duration,
        may_repeat: bool,
    ) -> Result<Response<Bytes>, HttpError> {
        let request = with_user_agent(request.map(Full::new));
        let repeated = may_repeat.then(|| request.clone());
        let exchange = async {
            let response = match (self.client.request(request).await, repeated) {
                (Err(error), Some(request)) if is_lost(&error) => self.client.request(request).await?,
                (response, _) => response?,
            };
            self.limits.received(response).await
        };
        tokio::time::timeout(timeout, exchange).await.unwrap_or(Err(HttpError::Timeout(timeout)))
    }
}

/// Returns whether an established connection ended without an answer, or a server of HTTP/2 ended the request.
fn is_lost(error: &legacy::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
    !error.is_connect() && cause.is_some_and(|cause| !cause.is_parse() && !cause.is_user())
}

fn builder(runtime: Handle) -> Builder {
    let mut builder = Client::builder(Spawner(runtime));
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).pool_max_idle_per_host(MAX_IDLE);
    builder
}

/// Runs connections on a runtime that outlives the calls.
#[derive(Clone, Debug)]
struct Spawner(Handle);

impl<F: Future<Output: Send + 'static> + Send + 'static> Executor<F> for Spawner {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// Connects as the client does.
#[derive(Clone, Debug)]
struct Dialer {
    client: HttpClient,
    /// The name of the protocol in ALPN.
    protocol: &'static str,
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<Box<dyn HttpStream>>;
    type Error = HttpError;
    type Future = BoxFuture<'static, Result<Self::Response, HttpError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let Self { client, protocol } = self.clone();
        Box::pin(async move {
            let dialed = tokio::time::timeout(CONNECT_TIMEOUT, client.dial(&url, protocol)).await;
            dialed.unwrap_or(Err(HttpError::Timeout(CONNECT_TIMEOUT))).map(TokioIo::new)
        })
    }
}

impl Connection for Box<dyn HttpStream> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_address_that_is_not_allowed_is_unsendable_and_one_without_a_server_is_not() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        for is_allowed in [false, true] {
            let client = HttpClient::new(CONNECT_TIMEOUT, 1_000).with_address_filter(move |_, _| is_allowed);
            let request = Request::get(format!("http://{closed}/")).body(Bytes::new()).unwrap();
            let sent = HttpPool::new(client, Handle::current()).send(request, CONNECT_TIMEOUT, true).await;
            let error = sent.unwrap_err();
            assert_eq!(error.is_unsendable(), !is_allowed, "{error}");
        }
    }
}
