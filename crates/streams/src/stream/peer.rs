use std::{
    error::Error,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Uri, header::AUTHORIZATION, uri::PathAndQuery};
use prost::Message;
use tokio::net::TcpStream;
use tonic::{
    Response, Status, Streaming,
    body::Body,
    client::{Grpc, GrpcService},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::keepalive::Keepalive;
use mixer_adapter_net::{
    HttpClient,
    grpc::CallMemory,
    read_file,
    tls::{self, Connector},
    with_causes,
};

/// The limit on connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest frame of HTTP/2 that a peer may send, in bytes: a large push costs a source much less in few frames.
const MAX_FRAME: u32 = 256 << 10;

/// A peer to dial, as in `mcp://host:port`, or with TLS `mcps://host:port`. The scheme is for logs.
#[derive(Clone, Debug)]
pub struct Peer {
    scheme: &'static str,
    address: String,
    tls: Option<Arc<tls::Client>>,
    token_file: Option<Arc<Path>>,
    keepalive: Keepalive,
}

/// A connection to a peer.
pub(crate) type PeerChannel = InterceptedService<Channel, Bearer>;

/// Adds a token to calls, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Bearer(Option<HeaderValue>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().as_mut().insert(AUTHORIZATION, value.clone());
        }
        Ok(request)
    }
}

/// The maximum length of a token in bytes.
const MAX_TOKEN: usize = 64 << 10;

/// A file whose token cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenFileError {
    #[error("the token file {0} cannot be read: {1}")]
    Read(PathBuf, io::Error),
    #[error(
        "the token file {0} has no token that a header can carry; write one line of ASCII of at most {MAX_TOKEN} bytes"
    )]
    Invalid(PathBuf),
}

impl Peer {
    /// The peer at `host:port`, without TLS.
    pub fn new(address: impl Into<String>) -> Self {
        let (tls, token_file) = (None, None);
        Self { scheme: "mcp", address: address.into(), tls, token_file, keepalive: Keepalive::default() }
    }

    /// The peer at `host:port`, with TLS.
    pub fn secured(address: impl Into<String>, tls: Arc<tls::Client>) -> Self {
        Self { scheme: "mcps", tls: Some(tls), ..Self::new(address) }
    }

    /// Returns the peer with other keepalive settings for its connections.
    #[must_use]
    pub fn with_keepalive(self, keepalive: Keepalive) -> Self {
        Self { keepalive, ..self }
    }

    /// Returns the peer with the scheme of another protocol.
    #[must_use]
    pub fn called(self, scheme: &'static str) -> Self {
        Self { scheme, ..self }
    }

    /// Returns the peer with a file whose token is sent with requests. It is read for each connection, and sent over
    /// TLS alone.
    #[must_use]
    pub(crate) fn with_token_file(self, file: Option<&Path>) -> Self {
        Self { token_file: file.map(Arc::from), ..self }
    }

    /// Returns the header with the token, if requests have one.
    pub(crate) fn authorization(&self) -> Result<Option<HeaderValue>, TokenFileError> {
        let Some(path) = self.token_file.as_deref().filter(|_| self.tls.is_some()) else { return Ok(None) };
        let token = read_file(path).map_err(|error| TokenFileError::Read(path.to_owned(), error))?;
        let token = token.trim_ascii();
        let is_token = (1..=MAX_TOKEN).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic);
        let value = is_token.then(|| HeaderValue::from_bytes(&[b"Bearer ", token].concat()));
        let mut value = value.and_then(Result::ok).ok_or_else(|| TokenFileError::Invalid(path.to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Connects; with TLS once its files can be used.
    pub(crate) async fn connect(&self) -> Result<PeerChannel, Status> {
        let authorization = self.authorization().map_err(|error| Status::unavailable(error.to_string()))?;
        let connected = match (self.endpoint(), &self.tls) {
            (Ok(endpoint), None) => endpoint.connect().await,
            (Ok(endpoint), Some(tls)) => {
                tls.ready().await;
                endpoint.connect_with_connector(Connector::new(tls.clone())).await
            }
            (Err(error), _) => Err(error),
        };
        let connected = connected
            .map_err(|error| Status::unavailable(format!("cannot connect: {}", with_causes(&error))));
        Ok(InterceptedService::new(connected?, Bearer(authorization)))
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
            .max_frame_size(MAX_FRAME)
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
    grpc.ready()
        .await
        .map_err(|error| Status::unavailable(format!("the connection is not ready: {}", error.into())))?;
    grpc.streaming(tonic::Request::new(requests), path, ProstCodec::default()).await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::{io::AsyncReadExt as _, net::TcpListener};

    use super::*;

    #[tokio::test]
    async fn a_peer_may_send_long_frames() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = Peer::new(listener.local_addr().unwrap().to_string());
        let settings = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The preface, and the header of SETTINGS with its length.
            let mut begin = [0; 24 + 9];
            stream.read_exact(&mut begin).await.unwrap();
            let mut settings = vec![0; usize::from(begin[26])];
            stream.read_exact(&mut settings).await.unwrap();
            settings
        };
        let (_channel, settings) = tokio::join!(peer.connect(), settings);
        // SETTINGS_MAX_FRAME_SIZE.
        let longest = settings.chunks(6).find(|setting| setting[..2] == [0, 5]).unwrap();
        assert_eq!(longest[2..], MAX_FRAME.to_be_bytes());
    }
}
