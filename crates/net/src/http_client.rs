//! A client of HTTP/1.1 over TLS. By hand on hyper: ready-made clients follow redirects and proxies to hosts that are not allowed.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderValue, Request, Response, Uri,
    header::{CONNECTION, HOST, USER_AGENT},
    uri::PathAndQuery,
};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
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
    filter: Option<AddressFilter>,
    memory: Option<CallMemory>,
}

/// Decides which addresses of a host may be connected to.
#[derive(Clone)]
struct AddressFilter(Arc<dyn AllowsAddress>);

trait AllowsAddress: Fn(&str, IpAddr) -> bool + Send + Sync {}

impl<F: Fn(&str, IpAddr) -> bool + Send + Sync> AllowsAddress for F {}

impl fmt::Debug for AddressFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressFilter")
    }
}

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

impl HttpClient {
    /// Creates a client for `http://` whose answers have at most `max_body` bytes and arrive completely within `timeout`.
    pub fn new(timeout: Duration, max_body: usize) -> Self {
        Self { timeout, max_body, tls: None, filter: None, memory: None }
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
        let url = request.uri();
        let host = url.host().ok_or(HttpError::Url)?.to_owned();
        let tls = match url.scheme_str() {
            Some("http") => None,
            Some("https") => Some(self.tls.as_ref().ok_or(HttpError::NoTls)?),
            _ => return Err(HttpError::Url),
        };
        let port = url.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
        let stream = self.connect(&host, port).await?;
        let request = origin_form(request);
        match tls {
            None => self.answer(stream, request).await,
            Some(tls) => self.answer(tls.connect(&host, stream, &["http/1.1"]).await?, request).await,
        }
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
        connected.map_err(|source| HttpError::Connect { host: format!("{host}:{port}"), source })
    }

    async fn collect(&self, body: Incoming) -> Result<Bytes, HttpError> {
        let mut limited = Limited::new(body, self.max_body);
        let mut bytes = BytesMut::new();
        while let Some(frame) = limited.frame().await {
            let frame = frame.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    HttpError::TooLong(self.max_body)
                } else {
                    HttpError::Body(error)
                }
            })?;
            let data = frame.into_data().unwrap_or_default();
            if self.memory.as_ref().is_some_and(|memory| !memory.take(data.len())) {
                return Err(HttpError::NoMemory);
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    }

    async fn answer(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, HttpError> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let answer = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            match self.collect(body).await {
                Ok(body) => Ok(Response::from_parts(head, body)),
                Err(HttpError::TooLong(_)) if !head.status.is_success() => {
                    Ok(Response::from_parts(head, Bytes::new()))
                }
                Err(error) => Err(error),
            }
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
    headers
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!("mixer-adapter/", env!("CARGO_PKG_VERSION"))));
    request
}

/// An error with its causes on one line: the text of a transport's error alone says little.
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
