//! Hosts adapters: opens and closes handlers, keeps sessions, and selects the handler of each call.
//!
//! Called by the gRPC services and, for adapters in the same process, by the engine.
//!
//! | question | file |
//! |---|---|
//! | which adapter is a configuration for | `select_adapter.rs` |
//! | which handler is a call for | `select_handler.rs` |
//! | what may a configuration reach | `access_policy.rs`, with `Access` of the core |
//! | who opens and closes sessions | `session/lifecycle.rs` |
//! | what do servers that share sessions exchange | `session/shared.rs` |
//! | who opens and closes handlers | `handler/opening.rs`, `handler/closing.rs` |
//! | where is a handler cached | `handler/cache.rs` |
//! | where is the deadline of a call enforced | `handler/call.rs` |

mod access_policy;
pub mod handler;
mod limits;
pub mod metrics;
mod select_adapter;
mod select_handler;
pub mod session;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use mixer_adapter_core::framework::log_limit::{FailureLogLimit, LogLimit};
use prost::bytes::Bytes;

use crate::{
    handler::{Adapters, CallError, Caller, Closing, HandlerTable, TableLimits},
    session::{MemoryStore, SessionOptions, SessionStore, SharedSessions},
};

pub use access_policy::{AccessPolicy, Origin};
pub use limits::{Limit, Refusals};
pub use session::NewSession;

/// The adapters of a process with their handlers and sessions.
pub struct Host {
    adapters: Arc<Adapters>,
    handlers: HandlerTable,
    sessions: MemoryStore,
    shared: Option<SharedSessions>,
    session_options: SessionOptions,
    closing: Closing,
    counts: Counts,
    refusals: Refusals,
    /// Limits the lines about refused sessions.
    session_log: FailureLogLimit,
    /// Limits the lines about evicted sessions.
    eviction_log: LogLimit,
}

/// Counters of sessions since the start.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Successful CreateSession calls.
    pub opened: AtomicU64,
    /// Refused CreateSession calls.
    pub refused: AtomicU64,
    /// Sessions ended by their last CloseSession.
    pub closed: AtomicU64,
    /// Sessions that expired.
    pub expired: AtomicU64,
    /// Sessions that were evicted for other ones.
    pub evicted: AtomicU64,
    /// Sessions of other servers that were opened here.
    pub loaded: AtomicU64,
}

mixer_adapter_core::framework::debug_fields!(Host { adapters });

impl Host {
    /// Hosts adapters with sessions in memory.
    pub fn new(adapters: Adapters, limits: TableLimits, closing: Closing) -> Self {
        let adapters = Arc::new(adapters);
        let handlers = HandlerTable::new(adapters.clone(), limits, closing.clone());
        let session_options = SessionOptions::default();
        Self {
            adapters,
            handlers,
            sessions: MemoryStore::default(),
            shared: None,
            session_options,
            closing,
            counts: Counts::default(),
            refusals: Refusals::default(),
            session_log: FailureLogLimit::new(),
            eviction_log: LogLimit::new(),
        }
    }

    /// Sets the options of sessions.
    #[must_use]
    pub fn with_session_options(self, session_options: SessionOptions) -> Self {
        Self { session_options, ..self }
    }

    /// Shares sessions with other servers through a store. All of them need the same [`SessionOptions::key`]. A session that no server
    /// uses for `idle` expires. [`synchronize_sessions`](Self::synchronize_sessions) has to be called every few seconds.
    #[must_use]
    pub fn with_session_store(mut self, store: Arc<dyn SessionStore>, idle: Option<Duration>) -> Self {
        self.sessions.collect_evicted();
        self.shared = Some(SharedSessions::new(store, idle));
        self
    }

    /// Returns whether the store that servers share is reached; `None` if sessions are not shared.
    pub fn reaches_session_store(&self) -> Option<bool> {
        self.shared.as_ref().map(SharedSessions::is_connected)
    }

    /// Sets what configurations may reach and configure, by their origin.
    #[must_use]
    pub fn with_access(mut self, access: AccessPolicy) -> Self {
        self.handlers.access = access;
        self
    }

    /// Returns the refusals by limit.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Returns the adapters.
    pub fn adapters(&self) -> &Adapters {
        &self.adapters
    }

    /// Returns the open handlers.
    pub fn handlers(&self) -> &HandlerTable {
        &self.handlers
    }

    /// Returns the sessions of this server.
    pub fn sessions(&self) -> &MemoryStore {
        &self.sessions
    }

    /// Returns the closing of handlers, which [`close`](Self::close) waits for.
    pub fn closing(&self) -> &Closing {
        &self.closing
    }

    /// Returns the counters of sessions.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Serves one request: an encoded message in, a gRPC frame out. Returns `None` if no template has this method.
    pub async fn call(&self, path: &str, request: Bytes, caller: Caller) -> Option<Result<Bytes, CallError>> {
        Some(self.adapters.method(path)?.call(request, self, caller).await)
    }

    /// Ends all sessions and closes all handlers. Waits up to `timeout`, and returns how many handlers are still open.
    pub async fn close(&self, timeout: Duration) -> usize {
        let begin = std::time::Instant::now();
        // Other servers then know which connections have ended.
        let _ = tokio::time::timeout(timeout / 4, self.synchronize_sessions()).await;
        self.sessions.clear();
        self.handlers.clear();
        self.closing.finish(timeout.saturating_sub(begin.elapsed())).await
    }
}
