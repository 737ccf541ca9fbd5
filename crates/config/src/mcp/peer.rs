use std::{
    fmt, io,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::{BoxFuture, FutureExt as _};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};
use tower_service::Service;

use mixer_adapter_net::tls;

/// How long a connection may take to make.
const CONNECT: Duration = Duration::from_secs(10);
/// Connections over which nothing comes are asked that often whether somebody is there: Galley allows no more, and a dead connection
/// would keep old configuration for ever (docs/behaviour/mcp.md#keepalive).
pub(super) const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long the answer to that may take.
pub(super) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Somebody to dial, as `mcp://host:port` names it, or `mcps://host:port` for TLS; the scheme is for people.
#[derive(Clone, Debug)]
pub struct Peer {
    scheme: &'static str,
    address: String,
    security: Option<Arc<tls::Client>>,
}

impl Peer {
    /// The peer at `host:port`, without TLS.
    pub fn new(address: impl Into<String>) -> Self {
        Self { scheme: "mcp", address: address.into(), security: None }
    }

    /// The peer at `host:port`, over TLS.
    pub fn secured(address: impl Into<String>, security: Arc<tls::Client>) -> Self {
        Self { scheme: "mcps", address: address.into(), security: Some(security) }
    }

    /// The same, with the scheme of another protocol.
    #[must_use]
    pub fn called(self, scheme: &'static str) -> Self {
        Self { scheme, ..self }
    }

    /// Connects; over TLS once its files are there. The error says what it could not.
    pub(crate) async fn connect(&self) -> Result<Channel, Status> {
        let connected = match (self.endpoint(), &self.security) {
            (Ok(endpoint), None) => endpoint.connect().await,
            (Ok(endpoint), Some(security)) => {
                security.ready().await;
                let dialer = Dialer { address: self.address.clone(), security: security.clone() };
                endpoint.connect_with_connector(dialer).await
            }
            (Err(error), _) => Err(error),
        };
        connected.map_err(|error| Status::unavailable(format!("cannot connect: {}", with_causes(&error))))
    }

    /// Who it is, `host:port`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// A connection for whatever is spoken on it.
    pub(crate) async fn stream(&self) -> io::Result<Box<dyn Stream>> {
        match self.dialer() {
            None => Ok(Box::new(TcpStream::connect(&self.address).await?)),
            Some(mut dialer) => Ok(Box::new(dialer.call(Uri::default()).await?.into_inner())),
        }
    }

    fn dialer(&self) -> Option<Dialer> {
        let security = self.security.clone()?;
        Some(Dialer { address: self.address.clone(), security })
    }

    /// Does something, and meanwhile keeps an eye on the files that connections need.
    pub(crate) async fn watching<T>(&self, work: impl Future<Output = T>) -> T {
        let Some(security) = &self.security else { return work.await };
        tokio::select! {
            done = work => done,
            never = security.watch() => match never {},
        }
    }

    fn endpoint(&self) -> Result<Endpoint, tonic::transport::Error> {
        Ok(Endpoint::from_shared(format!("http://{}", self.address))?
            .user_agent(concat!("mixer-adapter/", env!("CARGO_PKG_VERSION")))?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.address)
    }
}

/// A connection, with TLS or without.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Makes the connections of one peer that are TLS.
struct Dialer {
    address: String,
    security: Arc<tls::Client>,
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<tls::Secured>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (address, security) = (self.address.clone(), self.security.clone());
        let connected = async move {
            let stream = TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            let host = address.rsplit_once(':').map_or(&*address, |(host, _)| host);
            security.secure(host, stream).await.map(TokioIo::new).map_err(io::Error::other)
        };
        connected.boxed()
    }
}

/// An error with what caused it: the transport's own text is only `transport error`.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
