use std::{fmt, time::Duration};

use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

/// How long a connection may take to make.
const CONNECT: Duration = Duration::from_secs(10);
/// Connections over which nothing comes are asked that often whether somebody is there: Galley allows no more, and a dead connection
/// would keep old configuration for ever (spec: mcp-and-xds.md f, istio 13910, 18080).
pub(super) const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long the answer to that may take.
pub(super) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Somebody to dial, as `mcp://host:port` names it; the scheme is for people.
#[derive(Clone, Debug)]
pub struct Peer {
    scheme: &'static str,
    address: String,
}

impl Peer {
    /// The peer at `host:port`, without TLS.
    pub fn new(address: impl Into<String>) -> Self {
        Self { scheme: "mcp", address: address.into() }
    }

    /// The same, with the scheme of another protocol.
    #[must_use]
    pub fn called(self, scheme: &'static str) -> Self {
        Self { scheme, ..self }
    }

    /// Connects. The error says what it could not.
    pub(in crate::config) async fn connect(&self) -> Result<Channel, Status> {
        let connected = match self.endpoint() {
            Ok(endpoint) => endpoint.connect().await,
            Err(error) => Err(error),
        };
        connected.map_err(|error| Status::unavailable(format!("cannot connect: {}", with_causes(&error))))
    }

    fn endpoint(&self) -> Result<Endpoint, tonic::transport::Error> {
        Ok(Endpoint::from_shared(format!("http://{}", self.address))?
            .user_agent(concat!("mixer-adapter/", env!("CARGO_PKG_VERSION")))?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.address)
    }
}

/// An error with what caused it: the transport's own text is only `transport error`.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
