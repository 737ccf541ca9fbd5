//! The options of a server.

use std::time::Duration;

use mixer_adapter_core::framework::settings;
use mixer_adapter_net::{ConnectionLimits, Protocol, max_open_files};

settings! {
    /// Limits of a server on connections and calls.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct ServerOptions {
        /// Maximum size of a request message in bytes; a longer one is RESOURCE_EXHAUSTED.
        max_message_size: usize = 4 << 20,
        /// Maximum number of concurrent calls of all connections, from the arrival of the request until the answer is written.
        /// Connections share it fairly: a call over the limit is RESOURCE_EXHAUSTED, unless another connection has more calls and loses
        /// its newest one.
        max_concurrent_calls: usize = 16_384,
        /// Maximum number of calls whose requests have not arrived completely, and of open streams; shared in the same way.
        max_waiting_calls: usize = 16_384,
        /// Maximum number of bytes of requests in flight and of answers that are not written yet, beyond 4 KiB of each call; shared in
        /// the same way.
        max_call_bytes: usize = 128 << 20,
        /// Maximum number of concurrent calls on one connection; further ones wait in the client.
        max_calls_per_connection: usize = 1_024,
        /// Maximum number of connections, and at most half of the files that the process may open. A new connection evicts an idle one,
        /// or waits.
        max_connections: usize = 2_048,
        /// Maximum number of connections from one IP address; `None` sets no limit.
        max_connections_per_peer: Option<usize> = None,
        /// How long the TLS handshake and then the HTTP/2 preface of a connection may take.
        handshake_timeout: Duration = Duration::from_secs(10),
        /// How long the request of a unary call may take to arrive.
        body_timeout: Duration = Duration::from_secs(10),
        /// How long a client may take to read an answer before its connection is cut off.
        write_timeout: Duration = Duration::from_secs(20),
        /// Age at which a connection is drained, so that the one connection of a real Mixer moves on to other replicas; `None` keeps
        /// connections.
        max_connection_age: Option<Duration> = None,
        /// Maximum time for calls in flight when their connection ends, and for the whole shutdown: calls have three quarters of it, and
        /// closing handlers the rest.
        grace: Duration = Duration::from_secs(10),
        /// Interval of pings on an idle connection; `None` sends none.
        keepalive: Option<Duration> = Some(Duration::from_secs(30)),
        /// How long the answer to a ping may take.
        keepalive_timeout: Duration = Duration::from_secs(20),
        /// The longest time for a call, also if its deadline is later; `None` leaves it to the caller.
        call_timeout: Option<Duration> = None,
        /// How long a session may be unused before it is closed: Mixers that die never close theirs. `None` keeps sessions.
        session_idle: Option<Duration> = Some(Duration::from_secs(24 * 60 * 60)),
        /// Serves explanations of answers on ports that other machines can connect to, too: they show conditions of rules and the
        /// instances that adapters receive. Loopback ports always serve them.
        explain: bool = false,
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
            long_answers: false,
        }
    }
}
