use std::{
    error::Error,
    fmt, io,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::{Uri, uri::PathAndQuery};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::TcpStream;
use tonic::{
    Response, Status, Streaming,
    body::Body,
    client::{Grpc, GrpcService},
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::Keepalive;
use mixer_adapter_net::{
    HttpClient,
    grpc::CallMemory,
    tls::{self, TlsStream},
    with_causes,
};

/// The limit on connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A peer to dial, as in `mcp://host:port`, or with TLS `mcps://host:port`. The scheme is for logs.
#[derive(Clone, Debug)]
pub struct Peer {
    scheme: &'static str,
    address: String,
    tls: Option<Arc<tls::Client>>,
    keepalive: Keepalive,
}

impl Peer {
    /// The peer at `host:port`, without TLS.
    pub fn new(address: impl Into<String>) -> Self {
        Self { scheme: "mcp", address: address.into(), tls: None, keepalive: Keepalive::default() }
    }

    /// The peer at `host:port`, with TLS.
    pub fn secured(address: impl Into<String>, tls: Arc<tls::Client>) -> Self {
        Self { scheme: "mcps", tls: Some(tls), ..Self::new(address) }
    }

    /// The same peer with other pings on connections to it.
    #[must_use]
    pub fn with_keepalive(self, keepalive: Keepalive) -> Self {
        Self { keepalive, ..self }
    }

    /// The same peer with the scheme of another protocol.
    #[must_use]
    pub fn called(self, scheme: &'static str) -> Self {
        Self { scheme, ..self }
    }

    /// Connects; with TLS once its files can be used.
    pub(crate) async fn connect(&self) -> Result<Channel, Status> {
        let connected = match (self.endpoint(), &self.tls) {
            (Ok(endpoint), None) => endpoint.connect().await,
            (Ok(endpoint), Some(tls)) => {
                tls.ready().await;
                let connector = TlsConnector { address: self.address.clone(), tls: tls.clone() };
                endpoint.connect_with_connector(connector).await
            }
            (Err(error), _) => Err(error),
        };
        connected.map_err(|error| Status::unavailable(format!("cannot connect: {}", with_causes(&error))))
    }

    /// Checks that somebody listens at the address.
    pub(crate) async fn reach(&self) -> io::Result<()> {
        TcpStream::connect(&self.address).await.map(drop)
    }

    /// Returns a client for a request to the peer whose answer takes `memory`, and the URL of a path on it.
    pub(crate) fn http(
        &self,
        timeout: Duration,
        max_body: usize,
        memory: CallMemory,
        path: &str,
    ) -> (HttpClient, http::Result<Uri>) {
        let client = HttpClient::new(timeout, max_body).with_memory(memory);
        let (client, scheme) = match &self.tls {
            None => (client, "http"),
            Some(tls) => (client.with_tls(tls.clone()), "https"),
        };
        let url = Uri::builder().scheme(scheme).authority(&*self.address).path_and_query(path).build();
        (client, url)
    }

    /// Does `work` and checks the files of TLS meanwhile.
    pub(crate) async fn watching<T>(&self, work: impl Future<Output = T>) -> T {
        let Some(tls) = &self.tls else { return work.await };
        tokio::select! {
            done = work => done,
            never = tls.watch() => match never {},
        }
    }

    fn endpoint(&self) -> Result<Endpoint, tonic::transport::Error> {
        Ok(Endpoint::from_shared(format!("http://{}", self.address))?
            .user_agent(concat!("mixer-adapter/", env!("CARGO_PKG_VERSION")))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(self.keepalive.interval)
            .keep_alive_timeout(self.keepalive.timeout)
            .keep_alive_while_idle(true))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.address)
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

/// Opens a stream of a method; versions of a protocol may have the same messages.
pub(crate) async fn open<T, Q, P>(
    mut grpc: Grpc<T>,
    path: PathAndQuery,
    requests: impl futures_util::Stream<Item = Q> + Send + 'static,
) -> Result<Response<Streaming<P>>, Status>
where
    T: GrpcService<Body, ResponseBody: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static>,
    Q: Message + 'static,
    P: Message + Default + 'static,
{
    let not_ready = |error: T::Error| format!("the connection is not ready: {}", error.into());
    grpc.ready().await.map_err(|error| Status::unavailable(not_ready(error)))?;
    grpc.streaming(tonic::Request::new(requests), path, ProstCodec::default()).await
}

/// Opens the TLS connections of a channel.
struct TlsConnector {
    address: String,
    tls: Arc<tls::Client>,
}

impl Service<Uri> for TlsConnector {
    type Response = TokioIo<TlsStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (address, tls) = (self.address.clone(), self.tls.clone());
        let connected = async move {
            let stream = TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            let host = address.rsplit_once(':').map_or(&*address, |(host, _)| host);
            tls.connect(host, stream, &["h2"]).await.map(TokioIo::new).map_err(io::Error::other)
        };
        connected.boxed()
    }
}
