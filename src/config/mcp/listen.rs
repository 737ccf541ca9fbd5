use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::stream;
use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Status, body::Body, service::Routes, transport::server::TcpConnectInfo};
use tower_service::Service as _;

use super::{
    peer::{KEEPALIVE, KEEPALIVE_TIMEOUT},
    rate::{Bucket, Rate},
};

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

/// Serves MCP on a port of its own until told to stop. Streams that have ended by then are answered in full, others are
/// cut off: their clients come back, elsewhere perhaps.
pub async fn listen(listener: TcpListener, services: Routes, stop: CancellationToken) {
    let services = services.prepare();
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = TaskTracker::new();
    let accept = async {
        loop {
            let Ok(permit) = free.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (services, stop) = (services.clone(), stop.clone());
                    connections.spawn(async move {
                        serve(stream, services, stop).await;
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
        () = stop.cancelled() => {}
    }
    connections.close();
    connections.wait().await;
}

/// Serves one connection to its end, or until told to stop.
async fn serve(stream: TcpStream, services: Routes, stop: CancellationToken) {
    // The peer has gone already if this fails, and nobody is there to tell.
    let _ = stream.set_nodelay(true);
    let peer = TcpConnectInfo { local_addr: stream.local_addr().ok(), remote_addr: stream.peer_addr().ok() };
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        let mut services = services.clone();
        async move { services.call(request).await }
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
pub(in crate::config) fn outbox<T>(
    mut channel: mpsc::Receiver<T>,
) -> impl futures_util::Stream<Item = T> + Send
where
    T: Send,
{
    stream::poll_fn(move |context| channel.poll_recv(context))
}
