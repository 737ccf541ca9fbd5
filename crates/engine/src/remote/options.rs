use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue};
use tokio::io::DuplexStream;

use super::Backoff;
use mixer_adapter_core::{adapter::Access, framework::settings};
use mixer_adapter_host::handler::BoxFuture;
use mixer_adapter_net::{grpc::TraceParent, tls};

settings! {
    /// Options of connections to out-of-process adapters.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct Options {
        /// Timeout of connecting, including the TLS handshake.
        connect_timeout: Duration = Duration::from_secs(5),
        /// Delays between connection attempts; calls fail immediately meanwhile. By default at most 0.75 s, so that a
        /// restarted adapter is called again within a second.
        reconnect: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_millis(750) },
        /// Interval of keepalive pings while calls are in flight. Never without calls: some servers close connections that are
        /// pinged too often. `None` disables pings.
        keepalive: Option<Duration> = Some(Duration::from_secs(30)),
        /// Timeout of a ping.
        keepalive_timeout: Duration = Duration::from_secs(10),
        /// Interval at which a `dns:///` name is resolved again. It is also resolved when a connection ends.
        resolve_interval: Duration = Duration::from_secs(30),
        /// Resolves names to addresses.
        resolver: Resolver = Resolver::default(),
        /// Timeout of Validate and CreateSession together. The handler's own timeout applies to its calls.
        setup_timeout: Duration = Duration::from_secs(10),
        /// Timeout of CloseSession.
        close_timeout: Duration = Duration::from_secs(5),
        /// Delays between attempts to open a session.
        setup_backoff: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) },
        /// With `mutual`: the accepted URI SANs of an adapter's certificate. If empty, the SANs of the client's own certificate,
        /// as in Mixer (docs/behaviour/connections.md#mutual-tls).
        adapter_sans: Vec<String> = Vec::new(),
        /// Maximum age of a token that was read from a file. The first call after that reads the file again.
        token_file_age: Duration = Duration::from_secs(1),
        /// The hosts and files that connections may reach.
        access: Access = Access::unrestricted(),
        /// TLS that replaces the TLS of the connection's settings.
        tls: Option<ClientTls> = None,
        /// A header that each call has, such as a token, unless the connection's settings have one.
        token: Option<(HeaderName, HeaderValue)> = None,
        /// Replaces TCP connections to any address by connections within the process, without TLS.
        transport: Option<InProcessTransport> = None,
        /// Returns the ids of the span of a call if it is exported; the adapter then gets them in `traceparent`, in place of the
        /// caller's.
        exported_span: Option<ExportedSpan> = None,
    }
}

/// TLS of connections to an adapter.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// The certificates.
    pub client: Arc<tls::Client>,
    /// The name that the adapter's certificate must have; `None` for its host.
    pub server_name: Option<String>,
}

/// Returns the ids of a span that is exported.
pub type ExportedSpan = fn(&tracing::Span) -> Option<TraceParent>;

/// Resolves a name. The default uses the system's resolver.
#[derive(Clone)]
pub struct Resolver(Arc<Resolve>);

type Resolve = dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync;

impl Resolver {
    /// Creates a resolver from a function of host and port.
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
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no addresses"));
        }
        Ok(addresses)
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(|host, port| async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

mixer_adapter_core::framework::debug_fields!(Resolver {});

/// Connects to a server in the same process through in-memory pipes.
#[derive(Clone)]
pub struct InProcessTransport(Arc<dyn Fn() -> DuplexStream + Send + Sync>);

impl InProcessTransport {
    /// Creates a transport from a function that returns the client's end of a new pipe.
    pub fn new(connect: impl Fn() -> DuplexStream + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }

    pub(super) fn connect(&self) -> DuplexStream {
        (self.0)()
    }
}

mixer_adapter_core::framework::debug_fields!(InProcessTransport {});
