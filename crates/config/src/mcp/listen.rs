use std::{fmt, future::pending, pin::pin, sync::Arc, time::Duration};

use futures_util::stream;
use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Status, body::Body, service::Routes, transport::server::TcpConnectInfo};
use tower_service::Service as _;

use super::{
    peer::{KEEPALIVE, KEEPALIVE_TIMEOUT},
    rate::{Bucket, Rate},
};
use mixer_adapter_net::tls;

/// How a service treats those who dial it.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Streams at a time; one more is RESOURCE_EXHAUSTED.
    pub max_streams: usize,
    /// How often a stream may open; others wait.
    pub new_streams: Rate,
    /// The longest message in bytes; a longer one ends its stream.
    pub max_message_size: usize,
}

/// Lets streams in.
#[derive(Debug)]
pub(crate) struct Admission {
    free: Arc<Semaphore>,
    rate: Mutex<Bucket>,
}

impl Admission {
    pub(crate) fn new(options: &ServiceOptions) -> Self {
        let free = Arc::new(Semaphore::new(options.max_streams.min(Semaphore::MAX_PERMITS)));
        Self { free, rate: Mutex::new(Bucket::new(options.new_streams)) }
    }

    /// Waits for the turn of a new stream. It counts until the result is dropped.
    pub(crate) async fn enter(&self) -> Result<OwnedSemaphorePermit, Status> {
        let full = |_| Status::resource_exhausted("too many streams are open; try again later");
        let permit = self.free.clone().try_acquire_owned().map_err(full)?;
        let at = self.rate.lock().await.take(tokio::time::Instant::now().into_std());
        tokio::time::sleep_until(at.into()).await;
        Ok(permit)
    }
}

/// Connections at a time; further ones wait to be accepted.
const CONNECTIONS: usize = 10_000;
/// Streams at a time on one connection.
const STREAMS: u32 = 100;
/// How long accepting rests after it failed: out of file descriptors, it would fail again at once.
const REST: Duration = Duration::from_millis(100);

/// How long the last answers on a connection may take to be sent when it is to end.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// A port that is listened on.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    security: Option<Arc<tls::Server>>,
}

impl From<TcpListener> for Listener {
    /// Whoever can connect is served.
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, security: None }
    }
}

impl Listener {
    /// Connections are TLS, and who is not on the list of those who may dial is refused.
    pub fn secured(tcp: TcpListener, security: Arc<tls::Server>) -> Self {
        Self { tcp, security: Some(security) }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.security.is_some() { "mcps://" } else { "mcp://" })?;
        match self.tcp.local_addr() {
            Ok(address) => address.fmt(f),
            Err(error) => error.fmt(f),
        }
    }
}

/// Serves MCP on a port of its own until told to stop. Streams that have ended by then are answered in full, others are
/// cut off: their clients come back, elsewhere perhaps.
pub async fn listen(listener: impl Into<Listener>, services: Routes, stop: CancellationToken) {
    let Listener { tcp: listener, security } = listener.into();
    let services = services.prepare();
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = TaskTracker::new();
    let watch = async {
        match &security {
            Some(security) => security.watch().await,
            None => pending().await,
        }
    };
    let accept = async {
        if let Some(security) = &security {
            security.ready().await;
        }
        loop {
            let Ok(permit) = free.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (services, security, stop) = (services.clone(), security.clone(), stop.clone());
                    connections.spawn(async move {
                        serve(stream, security, services, stop).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept => {}
        never = watch => match never {},
        () = stop.cancelled() => {}
    }
    connections.close();
    connections.wait().await;
}

/// Serves one connection to its end, or until told to stop.
async fn serve(
    stream: TcpStream,
    security: Option<Arc<tls::Server>>,
    services: Routes,
    stop: CancellationToken,
) {
    // The peer has gone already if this fails, and nobody is there to tell.
    let _ = stream.set_nodelay(true);
    let peer = TcpConnectInfo { local_addr: stream.local_addr().ok(), remote_addr: stream.peer_addr().ok() };
    let Some(security) = security else {
        return exchange(stream, peer, None, services, stop).await;
    };
    let secured = tokio::select! {
        secured = security.secure(stream) => secured,
        () = stop.cancelled() => return,
    };
    match secured {
        Ok((stream, identity)) => exchange(stream, peer, Some((security, identity)), services, stop).await,
        Err(error) => tracing::info!(peer = ?peer.remote_addr, error, "a TLS handshake failed"),
    }
}

/// Who may open streams, and who wants to.
type Guard = Option<(Arc<tls::Server>, Option<tls::Identity>)>;

/// Who the sender of a request is, by the certificate.
#[derive(Clone, Debug)]
struct Name(Arc<str>);

/// Who sends a request, for people: where they are, and who their certificate says they are.
pub(super) fn sender<T>(request: &Request<T>) -> String {
    let address = request.remote_addr().map_or_else(|| "unknown".to_owned(), |address| address.to_string());
    match request.extensions().get::<Name>() {
        Some(Name(name)) => format!("{address} ({name})"),
        None => address,
    }
}

async fn exchange<S>(stream: S, peer: TcpConnectInfo, guard: Guard, services: Routes, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let name = guard.iter().find_map(|(_, identity)| identity.as_ref()?.names().first());
    let name = name.map(|name| Name(name.as_str().into()));
    let guard = Arc::new(guard);
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        if let Some(name) = &name {
            request.extensions_mut().insert(name.clone());
        }
        let (mut services, guard) = (services.clone(), guard.clone());
        async move {
            // By the list as it is now: streams that are open go on (docs/behaviour/mcp.md#access-lists).
            if let Some((security, identity)) = &*guard
                && let Err(refused) = security.access().check(identity.as_ref()).await
            {
                return Ok(refused.into_http());
            }
            services.call(request).await
        }
    });
    let served = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => Ok(ended),
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            tokio::time::timeout(LAST_ANSWERS, served).await
        }
    };
    if let Ok(Err(error)) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}

/// What arrives at a channel, as a stream.
pub(crate) fn outbox<T>(mut channel: mpsc::Receiver<T>) -> impl futures_util::Stream<Item = T> + Send
where
    T: Send,
{
    stream::poll_fn(move |context| channel.poll_recv(context))
}
