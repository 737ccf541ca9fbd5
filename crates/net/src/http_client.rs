//! A client of HTTP/1.1 over TLS. By hand on hyper: ready-made clients follow redirects and proxies to hosts that are not allowed.

use std::{
    error::Error as _,
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Request, Response, Uri, Version,
    header::{CONNECTION, HOST, USER_AGENT},
    uri::PathAndQuery,
};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::{client::legacy, rt::TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::{
    grpc::CallMemory,
    tls::{self, TlsError},
};

/// An HTTP/1.1 client for rare requests: each opens a connection. Does not follow redirects.
#[derive(Clone, Debug)]
pub struct HttpClient {
    timeout: Duration,
    max_body: usize,
    tls: Option<Arc<tls::Client>>,
    /// The name that certificates must have, if it is not the host of the URL.
    server_name: Option<String>,
    filter: Option<AddressFilter>,
    memory: Option<CallMemory>,
}

type AllowsAddress = dyn Fn(&str, IpAddr) -> bool + Send + Sync;

/// Decides which addresses of a host may be connected to.
#[derive(Clone)]
struct AddressFilter(Arc<AllowsAddress>);

impl fmt::Debug for AddressFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressFilter")
    }
}

/// A connection of HTTP, in the clear or with TLS.
pub(crate) trait HttpStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> HttpStream for S {}

/// A request without an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// A URL that is not `http://` or `https://` with a host.
    #[error("the URL is not valid; write it like \"https://host/path\"")]
    Url,
    /// An `https://` URL for a client without TLS.
    #[error("https is not supported here")]
    NoTls,
    /// A connection that failed.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// Host and port.
        host: String,
        /// The reason.
        source: io::Error,
    },
    /// A host without an address that may be connected to.
    #[error("no address of {0} may be connected to")]
    Forbidden(String),
    /// A TLS handshake that failed.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An exchange that was broken off, or was not HTTP/1.1.
    #[error("{}", with_causes(.0))]
    Http(#[from] hyper::Error),
    /// The same, of a client that keeps connections, or a connection that failed.
    #[error("{}", without_kind(.0))]
    Pooled(#[from] legacy::Error),
    /// A body that was broken off.
    #[error("{0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// An answer over the limit.
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
    /// An answer for which the limit of memory leaves none.
    #[error("no memory is left for the answer (memory-limit)")]
    NoMemory,
    /// No complete answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

impl HttpError {
    /// Returns whether the request itself is at fault, so that it cannot be sent later either.
    pub fn is_unsendable(&self) -> bool {
        match self {
            Self::Url | Self::NoTls | Self::Forbidden(_) => true,
            Self::Pooled(error) => {
                error.source().and_then(|cause| cause.downcast_ref::<Self>()).is_some_and(Self::is_unsendable)
            }
            Self::Connect { .. }
            | Self::Tls(_)
            | Self::Http(_)
            | Self::Body(_)
            | Self::TooLong(_)
            | Self::NoMemory
            | Self::Timeout(_) => false,
        }
    }
}

impl HttpClient {
    /// Creates a client for `http://` whose answers have at most `max_body` bytes and arrive completely within `timeout`.
    pub fn new(timeout: Duration, max_body: usize) -> Self {
        Self { timeout, max_body, tls: None, server_name: None, filter: None, memory: None }
    }

    /// Connects only to addresses for which `allows`, called with the host and an address it resolved to, returns true.
    #[must_use]
    pub fn with_address_filter(self, allows: impl Fn(&str, IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self { filter: Some(AddressFilter(Arc::new(allows))), ..self }
    }

    /// Allows `https://`, too.
    #[must_use]
    pub fn with_tls(self, tls: Arc<tls::Client>) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Requires certificates of this name in place of the host in the URL.
    #[must_use]
    pub fn with_server_name(self, server_name: Option<String>) -> Self {
        Self { server_name, ..self }
    }

    /// Takes memory for the bodies of answers as they arrive. It is released with the last clone of `memory`.
    #[must_use]
    pub fn with_memory(self, memory: CallMemory) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// Sends a request with an absolute URL. The body of an answer without success is empty if it is over the limit.
    ///
    /// # Errors
    /// See [`HttpError`]. An answer of any status is not an error.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        tokio::time::timeout(self.timeout, self.exchange(request))
            .await
            .unwrap_or(Err(HttpError::Timeout(self.timeout)))
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let stream = self.dial(request.uri(), "http/1.1").await?;
        self.answer(stream, origin_form(request)).await
    }

    /// Connects to the host of a URL, with TLS for a protocol by its name in ALPN.
    pub(crate) async fn dial(&self, url: &Uri, protocol: &str) -> Result<Box<dyn HttpStream>, HttpError> {
        let host = url.host().ok_or(HttpError::Url)?;
        let tls = match url.scheme_str() {
            Some("http") => None,
            Some("https") => Some(self.tls.as_ref().ok_or(HttpError::NoTls)?),
            _ => return Err(HttpError::Url),
        };
        let port = url.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
        let stream = self.connect(host, port).await?;
        Ok(match tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = self.server_name.as_deref().unwrap_or(host);
                Box::new(tls.connect(name, stream, &[protocol]).await?)
            }
        })
    }

    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, HttpError> {
        let name = host.trim_matches(['[', ']']);
        let connected = match &self.filter {
            None => TcpStream::connect((name, port)).await,
            Some(AddressFilter(allows)) => match tokio::net::lookup_host((name, port)).await {
                Err(error) => Err(error),
                Ok(addresses) => {
                    let allowed: Vec<SocketAddr> =
                        addresses.filter(|address| allows(name, address.ip())).collect();
                    if allowed.is_empty() {
                        return Err(HttpError::Forbidden(host.to_owned()));
                    }
                    TcpStream::connect(&allowed[..]).await
                }
            },
        };
        // A request of several writes would wait for the acknowledgement of the first one.
        let connected = connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        connected.map_err(|source| HttpError::Connect { host: format!("{host}:{port}"), source })
    }

    /// Receives the body of a response; trailers of HTTP/2 join its headers. The body of a response without success is empty if it is over the
    /// limit.
    pub(crate) async fn received(&self, response: Response<Incoming>) -> Result<Response<Bytes>, HttpError> {
        let (mut head, body) = response.into_parts();
        match self.collect(body).await {
            Ok((body, trailers)) => {
                if head.version == Version::HTTP_2 {
                    head.headers.extend(trailers);
                }
                Ok(Response::from_parts(head, body))
            }
            Err(HttpError::TooLong(_)) if !head.status.is_success() => {
                Ok(Response::from_parts(head, Bytes::new()))
            }
            Err(error) => Err(error),
        }
    }

    async fn collect(&self, body: Incoming) -> Result<(Bytes, HeaderMap), HttpError> {
        let mut limited = Limited::new(body, self.max_body);
        let (mut bytes, mut trailers) = (BytesMut::new(), HeaderMap::new());
        while let Some(frame) = limited.frame().await {
            let frame = frame.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    HttpError::TooLong(self.max_body)
                } else {
                    HttpError::Body(error)
                }
            })?;
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(frame) => {
                    trailers = frame.into_trailers().unwrap_or_default();
                    continue;
                }
            };
            if self.memory.as_ref().is_some_and(|memory| !memory.take(data.len())) {
                return Err(HttpError::NoMemory);
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.freeze(), trailers))
    }

    async fn answer(
        &self,
        stream: Box<dyn HttpStream>,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, HttpError> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let answer = async {
            let response = sender.send_request(request).await?;
            self.received(response).await
        };
        let mut answer = pin!(answer);
        tokio::select! {
            answer = answer.as_mut() => answer,
            // The connection may end before its last answer was read.
            _ = connection => answer.await,
        }
    }
}

/// The request as it is sent: with a path for a URL, and the headers that belong to the connection.
fn origin_form(request: Request<Bytes>) -> Request<Full<Bytes>> {
    let mut request = request.map(Full::new);
    let url = request.uri();
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let host = HeaderValue::try_from(format!("{}{port}", url.host().unwrap_or_default())).ok();
    let path = url.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    let headers = request.headers_mut();
    headers.extend(host.map(|host| (HOST, host)));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    with_user_agent(request)
}

/// Names this client, unless the request names another one.
pub(crate) fn with_user_agent<B>(mut request: Request<B>) -> Request<B> {
    let own = HeaderValue::from_static(concat!("mixer-adapter/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().entry(USER_AGENT).or_insert(own);
    request
}

/// The cause of an error of a client that keeps connections: the error itself has only its kind.
fn without_kind(error: &legacy::Error) -> String {
    let Some(cause) = error.source() else { return error.to_string() };
    // Its text has its cause.
    cause.downcast_ref::<HttpError>().map_or_else(|| with_causes(cause), ToString::to_string)
}

/// An error with its causes on one line: the text of a transport's error alone says little.
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
