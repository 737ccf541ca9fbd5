use std::{
    net::SocketAddr,
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{net::TcpStream, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Options, address::Address, exchange::Sender, security::Security};
use mixer_adapter_host::handler::BoxFuture;

/// What there is to call over.
#[derive(Clone, Debug)]
pub(super) enum Link {
    /// Being made, and there is no reason yet to think that it cannot be: calls wait.
    Connecting,
    /// A connection.
    Up(Sender),
    /// It could not be made; it is tried again in the background. Calls fail at once, for this reason.
    Down(Arc<str>),
}

/// Makes connections to one adapter.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) address: Address,
    pub(super) options: Options,
    pub(super) security: Option<Arc<Security>>,
}

type Driver = BoxFuture<'static, hyper::Result<()>>;

/// Where a connection without any answer lived for less than this, the next one is not made at once.
const STABLE: Duration = Duration::from_secs(1);

impl Dialer {
    /// Keeps a connection to that address, or to any of the name's without one, until it is retired: then it publishes
    /// once more, makes no other connection, and ends when the calls on the last one are done.
    pub(super) async fn keep(
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
                    let (since, answered) = (Instant::now(), sender.answered());
                    publish(Link::Up(sender));
                    let mut driver = pin!(driver);
                    tokio::select! {
                        ended = driver.as_mut() => log_end(&self.address, ended),
                        () = retired.cancelled() => {
                            // Lets go of the sender, so that the connection ends with its last call.
                            publish(Link::Connecting);
                            return log_end(&self.address, driver.await);
                        }
                    }
                    if answered.load(Relaxed) || since.elapsed() >= STABLE {
                        delays.reset();
                        publish(Link::Connecting);
                        continue;
                    }
                    // Once or twice may be an adapter that has just restarted; again and again is none.
                    publish(match delays.failures() {
                        0..3 => Link::Connecting,
                        _ => Link::Down("it ends every connection as soon as it is made".into()),
                    });
                }
                Err(why) => {
                    tracing::debug!(address = self.address.authority(), why, "no connection to the adapter");
                    publish(Link::Down(why.into()));
                }
            }
            tokio::select! {
                () = tokio::time::sleep(delays.next_delay()) => {}
                () = retired.cancelled() => return publish(Link::Connecting),
            }
        }
    }

    async fn connect(&self, to: Option<SocketAddr>) -> Result<(Sender, Driver), String> {
        let within = self.options.connect_timeout;
        let connected = async {
            if let Some(wire) = &self.options.wire {
                return self.handshake(wire.connect()).await;
            }
            let stream = self.stream(to).await?;
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            match &self.security {
                None => self.handshake(stream).await,
                Some(security) => self.handshake(security.secure(stream).await?).await,
            }
        };
        tokio::time::timeout(within, connected)
            .await
            .unwrap_or_else(|_| Err(format!("it did not answer within {within:?}")))
    }

    async fn stream(&self, to: Option<SocketAddr>) -> Result<TcpStream, String> {
        let Address { host, port, .. } = &self.address;
        let addresses = match to {
            Some(address) => vec![address],
            None => {
                let found = self.options.resolver.resolve(host, *port).await;
                found.map_err(|error| format!("{host:?} has no address: {error}"))?
            }
        };
        // One that does not answer leaves time for the others.
        let within = self.options.connect_timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let mut failures = Vec::new();
        for address in addresses {
            match tokio::time::timeout(within, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failures.push(format!("{address}: {error}")),
                Err(_) => failures.push(format!("{address} did not answer within {within:?}")),
            }
        }
        Err(failures.join("; "))
    }

    async fn handshake<S>(&self, stream: S) -> Result<(Sender, Driver), String>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let mut http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(self.options.keepalive)
            .keep_alive_timeout(self.options.keepalive_timeout)
            .keep_alive_while_idle(false);
        let (sender, driver) =
            http.handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        Ok((Sender::new(sender), Box::pin(driver)))
    }
}

fn log_end(address: &Address, ended: hyper::Result<()>) {
    match ended {
        Ok(()) => tracing::debug!(address = address.authority(), "a connection to the adapter ended"),
        Err(error) => {
            tracing::debug!(address = address.authority(), %error, "a connection to the adapter broke off");
        }
    }
}
