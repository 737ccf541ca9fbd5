//! The options of a server.

use std::time::Duration;

use mixer_adapter_core::framework::setters;
use mixer_adapter_net::{ConnectionLimits, Protocol, max_open_files};

/// Limits of a server on connections and calls.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Maximum size of a request message in bytes; a longer one is RESOURCE_EXHAUSTED.
    pub max_message_size: usize,
    /// Maximum number of concurrent calls of all connections, from the arrival of the request until the answer is written.
    /// Connections share it fairly: a call over the limit is RESOURCE_EXHAUSTED, or in its place the newest one of the connection
    /// with the most.
    pub max_concurrent_calls: usize,
    /// Maximum number of calls whose requests have not arrived completely, and of open streams; shared in the same way.
    pub max_waiting_calls: usize,
    /// Maximum number of bytes of requests in flight and of answers that are not written yet, beyond 4 KiB of each call; shared in
    /// the same way.
    pub max_call_bytes: usize,
    /// Maximum number of concurrent calls on one connection; further ones wait in the client.
    pub max_calls_per_connection: usize,
    /// Maximum number of connections, and at most half of the files that the process may open. Silent ones give way to
    /// further ones, which wait if there is none.
    pub max_connections: usize,
    /// Maximum number of connections from one IP address; `None` sets no limit.
    pub max_connections_per_peer: Option<usize>,
    /// How long the TLS handshake and then the HTTP/2 preface of a connection may take.
    pub handshake_timeout: Duration,
    /// How long the request of a unary call may take to arrive.
    pub body_timeout: Duration,
    /// How long a client may take to read an answer before its connection is cut off.
    pub write_timeout: Duration,
    /// Age at which a connection is drained, so that the one connection of a real Mixer moves on to other replicas; `None` keeps
    /// connections.
    pub max_connection_age: Option<Duration>,
    /// How long calls in flight may take to finish when their connection ends, and how long the whole shutdown of the server may
    /// take, of which calls have three quarters and the closing of handlers the rest.
    pub grace: Duration,
    /// Interval of pings on an idle connection; `None` sends none.
    pub keepalive: Option<Duration>,
    /// How long the answer to a ping may take.
    pub keepalive_timeout: Duration,
    /// The longest time for a call, also if its deadline is later; `None` leaves it to the caller.
    pub call_timeout: Option<Duration>,
    /// How long a session may be unused before it is closed: Mixers that die never close theirs. `None` keeps sessions.
    pub session_idle: Option<Duration>,
    /// Serves explanations of answers on ports that other machines can connect to, too: they show conditions of rules and the
    /// instances that adapters receive. Loopback ports always serve them.
    pub explain: bool,
}

setters!(ServerOptions {
    max_message_size: usize,
    max_concurrent_calls: usize,
    max_waiting_calls: usize,
    max_call_bytes: usize,
    max_calls_per_connection: usize,
    max_connections: usize,
    max_connections_per_peer: Option<usize>,
    handshake_timeout: Duration,
    body_timeout: Duration,
    write_timeout: Duration,
    max_connection_age: Option<Duration>,
    grace: Duration,
    keepalive: Option<Duration>,
    keepalive_timeout: Duration,
    call_timeout: Option<Duration>,
    session_idle: Option<Duration>,
    explain: bool,
});

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            max_message_size: 4 << 20,
            max_concurrent_calls: 16_384,
            max_waiting_calls: 16_384,
            max_call_bytes: 128 << 20,
            max_calls_per_connection: 1_024,
            max_connections: 2_048,
            max_connections_per_peer: None,
            handshake_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(20),
            max_connection_age: None,
            grace: Duration::from_secs(10),
            keepalive: Some(Duration::from_secs(30)),
            keepalive_timeout: Duration::from_secs(20),
            call_timeout: None,
            session_idle: Some(Duration::from_secs(24 * 60 * 60)),
            explain: false,
        }
    }
}

impl ServerOptions {
    /// The maximum number of connections that leaves enough of the process's files for everything else.
    pub(crate) fn possible_connections(&self) -> usize {
        self.max_connections.min(max_open_files() / 2)
    }

    pub(super) fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            protocol: Protocol::Http2 {
                max_streams: u32::try_from(self.max_calls_per_connection).unwrap_or(u32::MAX),
                keepalive: self.keepalive,
                keepalive_timeout: self.keepalive_timeout,
            },
            max_connections: self.possible_connections(),
            max_connections_per_peer: self.max_connections_per_peer,
            handshake_timeout: self.handshake_timeout,
            write_timeout: self.write_timeout,
            max_age: self.max_connection_age,
            grace: self.grace * 3 / 4,
        }
    }
}
