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

impl Limit {
    /// All limits.
    pub const ALL: [Self; 11] = [
        Self::Calls,
        Self::WaitingCalls,
        Self::Memory,
        Self::MessageSize,
        Self::Connections,
        Self::ConnectionsPerPeer,
        Self::HandshakeTimeout,
        Self::BodyTimeout,
        Self::WriteTimeout,
        Self::Settings,
        Self::ControlFrames,
    ];

    /// Returns the name: the flag of `serve`, if there is one.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calls => "max-calls",
            Self::WaitingCalls => "max-waiting-calls",
            Self::Memory => "memory-limit",
            Self::MessageSize => "max-message-size",
            Self::Connections => "max-connections",
            Self::ConnectionsPerPeer => "max-connections-per-peer",
            Self::HandshakeTimeout => "handshake-timeout",
            Self::BodyTimeout => "body-timeout",
            Self::WriteTimeout => "write-timeout",
            Self::Settings => "http2-settings",
            Self::ControlFrames => "http2-control-frames",
        }
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
pub struct LimitHits([AtomicU64; Limit::ALL.len()]);

impl LimitHits {
    /// Counts a call or a connection that was refused or ended by a limit.
    pub(crate) fn count(&self, limit: Limit) {
        self.0[limit as usize].fetch_add(1, Relaxed);
    }

    /// Returns how often a limit was hit.
    pub fn get(&self, limit: Limit) -> u64 {
        self.0[limit as usize].load(Relaxed)
    }
}
