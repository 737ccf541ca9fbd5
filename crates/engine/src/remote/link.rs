use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    net::{TcpStream, UnixStream},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    Options,
    address::{Address, HostAddress},
    exchange::Sender,
    security::Security,
};
use mixer_adapter_host::handler::BoxFuture;
use mixer_adapter_net::{Stream, tls::TlsError};

/// The state of one connection.
#[derive(Clone, Debug)]
pub(super) enum Link {
    /// Connecting for the first time: calls wait.
    Connecting,
    /// A connection.
    Up(Sender),
    /// Connecting again after a failure. Calls fail at once, for this reason.
    Down(Arc<str>),
}

/// Makes connections to one adapter.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) address: Address,
    pub(super) options: Options,
    pub(super) security: Option<Arc<Security>>,
}

/// A connection that cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("{host:?} has no address: {source}")]
    Resolve { host: String, source: io::Error },
    #[error("{0:?} has only local addresses, which --allow-hosts does not name")]
    Forbidden(String),
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

type Driver = BoxFuture<'static, hyper::Result<()>>;

/// After a connection that ended sooner than this without any answer, the next one is delayed.
const STABLE: Duration = Duration::from_secs(1);

impl Dialer {
    /// Maintains a connection to an address (`None`: to any address of the name) until `retired` is cancelled. Then it publishes once
    /// more, opens no other connection, and returns when the calls on the last one are done.
    pub(super) async fn run(
        &self,
        to: Option<SocketAddr>,
        retired: &CancellationToken,
        publish: impl Fn(Link),
    ) {
        let mut delays = self.options.reconnect.delays();
        loop {
            let connected = tokio::select! {
                connected = self.connect(to) => connected,
                () = retired.cancelled() => return publish(Link::Connecting),
            };
            match connected {
                Ok((sender, driver)) => {
                    let (since, answered) = (Instant::now(), sender.answered.clone());
                    publish(Link::Up(sender));
                    let mut driver = pin!(driver);
                    tokio::select! {
                        ended = driver.as_mut() => log_end(&self.address, ended),
                        () = retired.cancelled() => {
                            // Drops the sender, so that the connection ends with its last call.
                            publish(Link::Connecting);
                            return log_end(&self.address, driver.await);
                        }
                    }
                    if answered.load(Relaxed) || since.elapsed() >= STABLE {
                        delays.reset();
                        publish(Link::Connecting);
                        continue;
                    }
                    // A few times may be an adapter that has just restarted.
                    publish(match delays.failures() {
                        0..3 => Link::Connecting,
                        _ => Link::Down("it ends every connection as soon as it is made".into()),
                    });
                }
                Err(error) => {
                    tracing::debug!(address = %self.address, %error, "connecting to the adapter failed");
                    publish(Link::Down(error.to_string().into()));
                }
            }
            tokio::select! {
                () = tokio::time::sleep(delays.next_delay()) => {}
                () = retired.cancelled() => return publish(Link::Connecting),
            }
        }
    }

    async fn connect(&self, to: Option<SocketAddr>) -> Result<(Sender, Driver), ConnectError> {
        let within = self.options.connect_timeout;
        let connected = async {
            if let Some(transport) = &self.options.transport {
                return self.handshake(transport.connect()).await;
            }
            let stream = self.stream(to).await?;
            match &self.security {
                None => self.handshake(stream).await,
                Some(security) => self.handshake(security.connect(stream).await?).await,
            }
        };
        tokio::time::timeout(within, connected).await.unwrap_or(Err(ConnectError::Timeout(within)))
    }

    /// Finds the addresses of a host.
    pub(super) async fn resolve(&self, host: &HostAddress) -> Result<Vec<SocketAddr>, ConnectError> {
        let (HostAddress { host, port, .. }, within) = (host, self.options.connect_timeout);
        match tokio::time::timeout(within, self.options.resolver.resolve(host, *port)).await {
            Ok(Ok(mut addresses)) => {
                addresses.retain(|address| self.options.access.allows_address(host, address.ip()));
                if addresses.is_empty() { Err(ConnectError::Forbidden(host.clone())) } else { Ok(addresses) }
            }
            Ok(Err(source)) => Err(ConnectError::Resolve { host: host.clone(), source }),
            Err(_) => Err(ConnectError::Timeout(within)),
        }
    }

    async fn stream(&self, to: Option<SocketAddr>) -> Result<Stream, ConnectError> {
        let addresses = match (to, &self.address) {
            (Some(address), _) => vec![address],
            (None, Address::Host(host)) => self.resolve(host).await?,
            (None, Address::Unix(path)) => return Ok(Stream::Right(UnixStream::connect(path).await?)),
        };
        // An address that does not answer leaves time for the others.
        let within = self.options.connect_timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let mut failures = Vec::new();
        for address in addresses {
            match tokio::time::timeout(within, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true)?;
                    return Ok(Stream::Left(stream));
                }
                Ok(Err(error)) => failures.push(format!("{address}: {error}")),
                Err(_) => failures.push(format!("{address} did not answer within {within:?}")),
            }
        }
        Err(ConnectError::Refused(failures))
    }

    async fn handshake<S>(&self, stream: S) -> Result<(Sender, Driver), ConnectError>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let mut http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(self.options.keepalive)
            .keep_alive_timeout(self.options.keepalive_timeout)
            .keep_alive_while_idle(false);
        let (sender, driver) = http.handshake(TokioIo::new(stream)).await?;
        Ok((Sender::new(sender), Box::pin(driver)))
    }
}

fn log_end(address: &Address, ended: hyper::Result<()>) {
    match ended {
        Ok(()) => tracing::debug!(%address, "connection to the adapter ended"),
        Err(error) => tracing::debug!(%address, %error, "connection to the adapter broken"),
    }
}
