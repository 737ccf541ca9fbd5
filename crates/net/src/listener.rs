//! The accept loop of all ports. By hand: the servers of axum and tonic have no limits per peer, no ages and no eviction.

use std::{fmt, future::pending, io, sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::Semaphore, task::yield_now};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Limit, LimitHits, Workers,
    connection::{Connection, ConnectionLimits, HttpService, serve_stream},
    connections::{Connections, OpenConnection},
    refusal_log::RefusalLog,
    socket::{ListenAddress, Socket, Stream, attach},
    tls,
};

/// A listening socket, TCP or Unix, in the clear or with TLS.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    tls: Option<Arc<tls::Server>>,
    hits: Arc<LimitHits>,
}

impl From<TcpListener> for Listener {
    /// Serves every client, in the clear.
    fn from(tcp: TcpListener) -> Self {
        Self::new(Socket::Tcp(tcp))
    }
}

impl fmt::Display for Listener {
    /// The address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Ok(address) => address.fmt(f),
            Err(error) => error.fmt(f),
        }
    }
}

impl Listener {
    /// Listens on an address. The file of a Unix socket can be used by this user only; it replaces the socket of a process that has
    /// ended, and is removed when the listener is dropped.
    ///
    /// # Errors
    /// The address cannot be bound, for example because it is in use.
    pub async fn bind(address: &ListenAddress) -> io::Result<Self> {
        Socket::bind(address).await.map(Self::new)
    }

    fn new(socket: Socket) -> Self {
        Self { socket, tls: None, hits: Arc::default() }
    }

    /// Serves TLS.
    #[must_use]
    pub fn with_tls(self, tls: Arc<tls::Server>) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Moves the socket to the current runtime, which then accepts connections.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn moved(self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.moved()?, ..self })
    }

    /// Counts in `hits` how often the limits of connections and calls are hit.
    #[must_use]
    pub fn count_limits(mut self, hits: Arc<LimitHits>) -> Self {
        self.hits = hits;
        self
    }

    /// Returns the address, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn address(&self) -> io::Result<ListenAddress> {
        self.socket.address()
    }

    /// Returns the TLS of the listener; `None` in the clear.
    pub fn tls(&self) -> Option<&Arc<tls::Server>> {
        self.tls.as_ref()
    }

    /// Serves HTTP until `stop` is cancelled, then drains: the socket closes, connections take no more requests, and requests in
    /// flight have [`ConnectionLimits::grace`] to finish. Returns when every connection has ended.
    ///
    /// Each connection runs on a thread of `workers`, and has a service from `make_service`. With TLS, connections are
    /// accepted once the certificate's files are usable.
    pub async fn serve<S: HttpService>(
        self,
        limits: ConnectionLimits,
        workers: &Workers,
        make_service: impl Fn(&Connection) -> S + Clone + Send + 'static,
        stop: CancellationToken,
    ) {
        let connections = TaskTracker::new();
        let open = Connections::new(self.hits.clone());
        let refusals = Arc::new(RefusalLog::new());
        let port = Port { limits, make_service, tls: self.tls.clone(), stop: stop.clone(), open, refusals };
        let reload = async {
            match &self.tls {
                Some(tls) => tls.watch().await,
                None => pending().await,
            }
        };
        let periods = async {
            loop {
                tokio::time::sleep(limits.write_timeout / 2).await;
                port.open.next_period();
            }
        };
        tokio::select! {
            () = self.accept(workers, &port, &connections) => {}
            never = reload => match never {},
            () = periods => {}
            () = stop.cancelled() => {}
        }
        drop(self.socket);
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
        let mut id = 0;
        let first_turns = Arc::new(Semaphore::new(FIRST_TURNS));
        loop {
            // The semaphore is never closed.
            let Ok(first_turn) = first_turns.clone().acquire_owned().await else { return };
            let (stream, address) = match self.socket.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Perhaps there are no file descriptors left; idle connections hold some.
                    let ended = port.open.end_silent();
                    tracing::warn!(%error, ended_silent_connection = ended, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                    continue;
                }
            };
            if let (Some(max), Some(address)) = (port.limits.max_connections_per_peer, address)
                && port.open.count_from(address) >= max
            {
                port.open.hit(Limit::ConnectionsPerPeer);
                tracing::debug!(%address, "connection refused: its address has too many");
                continue;
            }
            port.make_room().await;
            id += 1;
            let port = port.clone();
            let worker = workers.choose();
            let open = port.open.open(id, address, worker.clone());
            let new = (worker.count_new(), first_turn);
            worker.spawn(connections, move || async move {
                // On the worker's runtime, which polls the stream.
                let attached = attach(stream);
                // Data that has arrived can be read in the next turn.
                yield_now().await;
                open.0.set_had_turn();
                drop(new);
                match attached {
                    Ok(stream) => port.serve(stream, id, &open).await,
                    Err(error) => tracing::warn!(%error, "serving a connection failed"),
                }
            });
        }
    }
}

/// Connections that may wait for their first turn. More wait in the queue of the system: a flood does not occupy the workers, and each is
/// known to be silent or not before it could be evicted.
const FIRST_TURNS: usize = 64;

/// The wait after a failure to accept: without file descriptors, the next attempt would fail at once.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// The interval of searches for silent connections while a new one waits for room.
const ROOM_INTERVAL: Duration = Duration::from_millis(100);

/// Connections end by themselves within the grace; their tasks get this long to be seen ending.
const MARGIN: Duration = Duration::from_millis(500);

/// The state that the connections of a port share.
#[derive(Clone)]
struct Port<M> {
    limits: ConnectionLimits,
    make_service: M,
    tls: Option<Arc<tls::Server>>,
    stop: CancellationToken,
    open: Arc<Connections>,
    refusals: Arc<RefusalLog>,
}

impl<M> Port<M> {
    /// Waits until there is room for one more connection. Evicts idle ones.
    async fn make_room(&self) {
        let max = self.limits.max_connections;
        loop {
            let count = self.open.count();
            // Evicted connections take a moment to end.
            if count < max || (self.open.end_silent() && count <= max + max / 8) {
                return;
            }
            // Others become silent as time goes by.
            let _ = tokio::time::timeout(ROOM_INTERVAL, self.open.changed.notified()).await;
        }
    }

    async fn serve<S: HttpService>(self, stream: Stream, id: u64, open: &OpenConnection)
    where
        M: Fn(&Connection) -> S,
    {
        let (local, remote) = match &stream {
            Stream::Left(tcp) => (tcp.local_addr().ok(), tcp.peer_addr().ok()),
            Stream::Right(_) => (None, None),
        };
        let state = &open.0;
        let mut connection = Connection { id, local, remote, identity: None, state: state.clone() };
        let Some(tls) = &self.tls else {
            let service = (self.make_service)(&connection);
            return serve_stream(stream, state, id, &self.limits, service, &self.stop).await;
        };
        let secured = tokio::select! {
            secured = tls.accept(stream, self.limits.handshake_timeout) => secured,
            () = self.stop.cancelled() => return,
            () = state.cut.cancelled() => return,
        };
        match secured {
            Ok((stream, identity)) => {
                connection.identity = identity;
                let service = (self.make_service)(&connection);
                serve_stream(stream, state, id, &self.limits, service, &self.stop).await;
            }
            Err(error) => {
                if matches!(error, tls::TlsError::Timeout { .. }) {
                    self.open.hit(Limit::HandshakeTimeout);
                }
                self.refusals.log(&error);
            }
        }
    }
}
