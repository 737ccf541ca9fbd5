use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use http::HeaderMap;
use tokio::time::Instant;

use super::{CallMemory, TraceParent};

/// The context of one call: who makes it, until when, and within which memory.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The number of the connection, as in [`Connection::id`](crate::Connection::id); 0 for calls from within the process.
    pub connection: u64,
    /// The authenticated name of the peer, such as a SAN of its certificate; `None` for peers that are not authenticated.
    pub peer: Option<Arc<str>>,
    /// The address of the peer; `None` for Unix sockets and calls from within the process.
    pub remote: Option<SocketAddr>,
    /// The earlier of the caller's deadline and the server's own.
    pub deadline: Option<Instant>,
    /// The trace that the call is part of.
    pub trace: Option<TraceParent>,
    /// The header `x-request-id`, which the caller chooses.
    pub request_id: Option<Arc<str>>,
    /// The headers of the call; `None` for calls from within the process.
    pub metadata: Option<Arc<HeaderMap>>,
    /// The memory of the call; `None` for calls from within the process.
    pub memory: Option<CallMemory>,
}

/// The numbers of the connections of other servers, each for one call.
const OF_OTHER_SERVERS: u64 = 1 << 63;

impl Caller {
    /// Returns the caller of a call that another server of this process has accepted. Its connection is unknown, so that nothing that a
    /// connection owns belongs to it.
    #[must_use]
    pub fn of_other_server(self) -> Self {
        static CALLS: AtomicU64 = AtomicU64::new(OF_OTHER_SERVERS);
        Self { connection: CALLS.fetch_add(1, Relaxed), ..self }
    }

    /// Returns the name of the peer for logs: its authenticated name, or its address.
    pub fn peer_name(&self) -> impl fmt::Display {
        fmt::from_fn(|f| match self {
            Self { peer: Some(name), .. } => f.write_str(name),
            Self { remote: Some(address), .. } => fmt::Display::fmt(address, f),
            Self { connection: 0, .. } => f.write_str("this process"),
            Self { connection: OF_OTHER_SERVERS.., .. } => f.write_str("a client of the program's server"),
            _ => f.write_str("a Unix socket"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Caller;

    #[test]
    fn a_peer_is_named_by_its_authenticated_name_else_by_where_it_is() {
        let remote = Some(([192, 0, 2, 1], 4321).into());
        let by_address = Caller { connection: 1, remote, ..Caller::default() };
        let by_name = Caller { peer: Some("spiffe://cluster.local/ns/a/sa/b".into()), ..by_address.clone() };
        assert_eq!(by_name.peer_name().to_string(), "spiffe://cluster.local/ns/a/sa/b");
        assert_eq!(by_address.peer_name().to_string(), "192.0.2.1:4321");
        assert_eq!(Caller { remote: None, ..by_address }.peer_name().to_string(), "a Unix socket");
        assert_eq!(Caller::default().peer_name().to_string(), "this process");
    }
}
