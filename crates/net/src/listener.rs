use std::{fmt, future::pending, io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Workers,
    connection::{Connection, ConnectionLimits, HttpService, serve_stream},
    tls,
};

/// A listening socket, in the clear or with TLS.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    tls: Option<Arc<tls::Server>>,
}

impl From<TcpListener> for Listener {
    /// Serves every client, in the clear.
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, tls: None }
    }
}

impl fmt::Display for Listener {
    /// The address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.local_addr() {
            Ok(address) => address.fmt(f),
            Err(error) => error.fmt(f),
        }
    }
}

impl Listener {
    /// Serves mutual TLS.
    pub fn with_tls(tcp: TcpListener, tls: Arc<tls::Server>) -> Self {
        Self { tcp, tls: Some(tls) }
    }

    /// Returns the address, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Returns the TLS of the listener; `None` in the clear.
    pub fn tls(&self) -> Option<&Arc<tls::Server>> {
        self.tls.as_ref()
    }

    /// Serves HTTP until `stop` is cancelled, then drains: the socket closes, connections take no more requests, and requests in
    /// flight have [`ConnectionLimits::grace`] to finish. Returns when every connection has ended.
    ///
    /// Each connection runs on one of the `workers`, and has a service of its own from `make_service`. With TLS, connections are
    /// accepted once the certificate's files are usable.
    pub async fn serve<S: HttpService>(
        self,
        limits: ConnectionLimits,
        workers: &Workers,
        make_service: impl Fn(&Connection) -> S + Clone + Send + 'static,
        stop: CancellationToken,
    ) {
        let connections = TaskTracker::new();
        let port = Port { limits, make_service, tls: self.tls.clone(), stop: stop.clone() };
        let reload = async {
            match &self.tls {
                Some(tls) => tls.watch().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = self.accept(workers, &port, &connections) => {}
            never = reload => match never {},
            () = stop.cancelled() => {}
        }
        drop(self.tcp);
        connections.close();
        if !connections.is_empty() {
            tracing::info!(connections = connections.len(), "draining connections");
        }
        let _ = tokio::time::timeout(limits.grace + MARGIN, connections.wait()).await;
    }

    async fn accept<S: HttpService, M>(&self, workers: &Workers, port: &Port<M>, connections: &TaskTracker)
    where
        M: Fn(&Connection) -> S + Clone + Send + 'static,
    {
        if let Some(tls) = &self.tls {
            tls.ready().await;
        }
        let free = Arc::new(Semaphore::new(port.limits.max_connections.min(Semaphore::MAX_PERMITS)));
        let mut id = 0;
        loop {
            // Never closed, so there is always a permit to wait for.
            let permit = free.clone().acquire_owned().await.ok();
            let accepted = self.tcp.accept().await.and_then(|(stream, _)| {
                stream.set_nodelay(true)?;
                stream.into_std()
            });
            let stream = match accepted {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                    continue;
                }
            };
            id += 1;
            let port = port.clone();
            workers.spawn(connections, move || async move {
                let _permit = permit;
                // On the worker's runtime, which polls the stream.
                match TcpStream::from_std(stream) {
                    Ok(stream) => port.serve(stream, id).await,
                    Err(error) => tracing::warn!(%error, "serving a connection failed"),
                }
            });
        }
    }
}

/// The wait after a failure to accept: without file descriptors, the next attempt would fail at once.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Connections end by themselves within the grace; their tasks get this long to be seen ending.
const MARGIN: Duration = Duration::from_millis(500);

/// What the connections of a port share.
#[derive(Clone)]
struct Port<M> {
    limits: ConnectionLimits,
    make_service: M,
    tls: Option<Arc<tls::Server>>,
    stop: CancellationToken,
}

impl<M> Port<M> {
    async fn serve<S: HttpService>(self, stream: TcpStream, id: u64)
    where
        M: Fn(&Connection) -> S,
    {
        let (local, remote) = (stream.local_addr().ok(), stream.peer_addr().ok());
        let mut connection = Connection { id, local, remote, identity: None };
        let Some(tls) = &self.tls else {
            let service = (self.make_service)(&connection);
            return serve_stream(stream, id, &self.limits, service, &self.stop).await;
        };
        let secured = tokio::select! {
            secured = tls.accept(stream) => secured,
            () = self.stop.cancelled() => return,
        };
        match secured {
            Ok((stream, identity)) => {
                connection.identity = identity;
                let service = (self.make_service)(&connection);
                serve_stream(stream, id, &self.limits, service, &self.stop).await;
            }
            Err(error) => tracing::info!(%error, "connection refused"),
        }
    }
}
