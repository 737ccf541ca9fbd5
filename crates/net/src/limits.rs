use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tonic::Status;

/// A limit of a server on its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Calls whose request has arrived and whose answer is not written yet.
    Calls,
    /// Calls whose request has not arrived yet, and open streams.
    WaitingCalls,
    /// Bytes of requests and of answers that are not written yet.
    Memory,
    /// The size of a message.
    MessageSize,
    /// Connections.
    Connections,
    /// Connections from one address.
    ConnectionsPerPeer,
    /// The time for the TLS handshake and the HTTP/2 preface.
    HandshakeTimeout,
    /// The time for the request of a unary call to arrive.
    BodyTimeout,
    /// The time for the peer to read an answer.
    WriteTimeout,
    /// The rate of SETTINGS frames of an HTTP/2 connection, which has no flag.
    Settings,
    /// The rate of other HTTP/2 frames without headers or data, which has no flag.
    ControlFrames,
}

/// The names of the limits, in their order.
const NAMES: [&str; 11] = [
    "max-calls",
    "max-waiting-calls",
    "memory-limit",
    "max-message-size",
    "max-connections",
    "max-connections-per-peer",
    "handshake-timeout",
    "body-timeout",
    "write-timeout",
    "http2-settings",
    "http2-control-frames",
];

impl Limit {
    /// Returns the name: the flag of `serve`, if there is one.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// RESOURCE_EXHAUSTED with the name of the limit.
    pub(crate) fn exhausted(self) -> Status {
        let what = match self {
            Self::Calls => "too many calls are being served",
            Self::WaitingCalls => "too many calls wait for their requests",
            _ => "the server has no memory left for this call",
        };
        Status::resource_exhausted(format!("{what} ({}); try again", self.name()))
    }
}

/// How often each limit was hit.
#[derive(Debug, Default)]
pub struct LimitHits([AtomicU64; NAMES.len()]);

impl LimitHits {
    /// Counts a call or a connection that was refused or ended by a limit.
    pub(crate) fn count(&self, limit: Limit) {
        self.0[limit as usize].fetch_add(1, Relaxed);
    }

    /// Returns how often a limit was hit.
    pub fn get(&self, limit: Limit) -> u64 {
        self.0[limit as usize].load(Relaxed)
    }

    /// Returns how often each limit was hit, by its name.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(&self.0).map(|(name, hits)| (name, hits.load(Relaxed)))
    }
}
