use std::{fmt, future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::io::DuplexStream;

use super::Backoff;
use mixer_adapter_host::handler::BoxFuture;

/// How adapters that run elsewhere are called.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long it may take until a connection stands, TLS included.
    pub connect_timeout: Duration,
    /// Delays before a connection is tried again; calls fail at once meanwhile. The longest one by default is 0.75 s, so that an
    /// adapter that is back is called again within a second.
    pub reconnect: Backoff,
    /// How often a silent adapter is asked whether it is still there, while calls wait for it. Never while none does:
    /// some servers end connections that are asked too often. `None` never asks.
    pub keepalive: Option<Duration>,
    /// How long the answer to that may take.
    pub keepalive_timeout: Duration,
    /// The longest answer in bytes; a longer one is RESOURCE_EXHAUSTED.
    pub max_response_size: usize,
    /// How often a `dns:///` name is looked up again. It is also looked up when a connection ends.
    pub resolve_interval: Duration,
    /// How a name's addresses are found.
    pub resolver: Resolver,
    /// How long Validate and CreateSession may take together. The handler's own timeout is for its calls.
    pub setup_timeout: Duration,
    /// How long CloseSession may take.
    pub close_timeout: Duration,
    /// Delays before a session that an adapter refused is tried again.
    pub setup_backoff: Backoff,
    /// With `mutual`: the URI SANs of which an adapter's certificate must have one. Empty: those of the client's own
    /// certificate, as Mixer demands (docs/behaviour/connections.md#mutual-tls).
    pub adapter_sans: Vec<String>,
    /// How old a token's file may be known: it is read again for the first call after that.
    pub token_file_age: Duration,
    /// What connections are made of in place of TCP, whatever the address: without TLS, within the process.
    pub wire: Option<Wire>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            reconnect: Backoff { first: Duration::from_millis(50), longest: Duration::from_millis(750) },
            keepalive: Some(Duration::from_secs(30)),
            keepalive_timeout: Duration::from_secs(10),
            max_response_size: 4 << 20,
            resolve_interval: Duration::from_secs(30),
            resolver: Resolver::default(),
            setup_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(5),
            setup_backoff: Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) },
            adapter_sans: Vec::new(),
            token_file_age: Duration::from_secs(1),
            wire: None,
        }
    }
}

/// Finds the addresses of a name. The default asks the system.
#[derive(Clone)]
pub struct Resolver(Arc<Resolve>);

type Resolve = dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync;

impl Resolver {
    /// Asks a function of host and port.
    pub fn new<F>(resolve: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        Self(Arc::new(move |host, port| Box::pin(resolve(host, port))))
    }

    pub(super) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut addresses = (self.0)(host.to_owned(), port).await?;
        let mut known = std::collections::HashSet::new();
        addresses.retain(|address| known.insert(*address));
        match addresses.is_empty() {
            true => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
            false => Ok(addresses),
        }
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(|host, port| async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// Makes connections to a server in the same process: a pair of pipes, of which the server has one end already.
#[derive(Clone)]
pub struct Wire(Arc<dyn Fn() -> DuplexStream + Send + Sync>);

impl Wire {
    /// Takes the client's ends from that function.
    pub fn new(connect: impl Fn() -> DuplexStream + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }

    pub(super) fn connect(&self) -> DuplexStream {
        (self.0)()
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}
