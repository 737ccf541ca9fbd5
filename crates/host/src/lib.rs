//! Hosts adapters: finds the handler each call runs with, and answers Validate, CreateSession and CloseSession.
//!
//! This is what the gRPC services call, and what the engine calls for adapters in its own process.

mod assign;
mod backend;
pub mod handler;
pub mod metrics;
mod resolve;
pub mod session;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use prost::bytes::Bytes;

pub use backend::NewSession;

use crate::{
    handler::{Adapters, CallError, Caller, Closing, HandlerTable, TableLimits},
    session::{MemoryStore, SessionStore},
};

/// The adapters of a process with their handlers and sessions.
pub struct Host {
    adapters: Arc<Adapters>,
    handlers: HandlerTable,
    sessions: Box<dyn SessionStore>,
    closing: Closing,
    counts: Counts,
}

/// What happened to sessions since the start.
#[derive(Debug, Default)]
pub struct Counts {
    /// Sessions made or claimed again.
    pub opened: AtomicU64,
    /// CreateSession calls that were refused.
    pub refused: AtomicU64,
    /// Sessions ended by their last CloseSession.
    pub closed: AtomicU64,
    /// Sessions ended for want of use.
    pub expired: AtomicU64,
}

impl Host {
    /// Hosts adapters, with sessions in memory.
    pub fn new(adapters: Adapters, limits: TableLimits, closing: Closing) -> Self {
        Self::with_store(adapters, limits, closing, Box::new(MemoryStore::default()))
    }

    /// Hosts adapters, with sessions in that store.
    pub fn with_store(
        adapters: Adapters,
        limits: TableLimits,
        closing: Closing,
        sessions: Box<dyn SessionStore>,
    ) -> Self {
        let adapters = Arc::new(adapters);
        let handlers = HandlerTable::new(adapters.clone(), limits, closing.clone());
        Self { adapters, handlers, sessions, closing, counts: Counts::default() }
    }

    /// The adapters.
    pub fn adapters(&self) -> &Adapters {
        &self.adapters
    }

    /// The open handlers.
    pub fn handlers(&self) -> &HandlerTable {
        &self.handlers
    }

    /// The sessions.
    pub fn sessions(&self) -> &dyn SessionStore {
        &*self.sessions
    }

    /// Where handlers are closed; [`close`](Self::close) waits for all of it.
    pub fn closing(&self) -> &Closing {
        &self.closing
    }

    /// What happened to sessions since the start.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Serves one request of the method at that path, from and to gRPC frames; `None` if there is no such method.
    pub async fn call(&self, path: &str, request: Bytes, caller: Caller) -> Option<Result<Bytes, CallError>> {
        Some(self.adapters.method(path)?.call(request, self, caller).await)
    }

    /// One tick of the clock by which sessions expire: ten ticks without use end a session. Also lets go of idle
    /// handlers.
    pub fn tick(&self) {
        let expired = self.sessions.tick();
        if expired > 0 {
            self.counts.expired.fetch_add(expired as u64, Relaxed);
            tracing::info!(expired, "sessions without use ended");
        }
        self.handlers.sweep();
    }

    /// Lets go of all sessions and handlers and waits until they are closed, at most that long. Returns how many were
    /// not.
    pub async fn close(&self, at_most: std::time::Duration) -> usize {
        self.sessions.clear();
        self.handlers.clear();
        self.closing.finish(at_most).await
    }
}
