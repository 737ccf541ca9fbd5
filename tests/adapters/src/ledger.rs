//! Counters of handlers and their calls, for tests.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

/// Counters of all handlers with this ledger in their configuration.
#[derive(Debug, Default)]
pub struct Ledger {
    opened: AtomicU64,
    closed: AtomicU64,
    leaked: AtomicU64,
    entered: AtomicU64,
    finished: AtomicU64,
    abandoned: AtomicU64,
    gate: AtomicBool,
    threads: Mutex<HashSet<ThreadId>>,
}

/// Returns the ledger with a name. Each test uses its own name.
pub fn ledger(name: &str) -> Arc<Ledger> {
    static LEDGERS: LazyLock<Mutex<HashMap<String, Arc<Ledger>>>> = LazyLock::new(Mutex::default);
    LEDGERS.lock().unwrap_or_else(PoisonError::into_inner).entry(name.to_owned()).or_default().clone()
}

impl Ledger {
    /// Returns the number of attempts to open a handler.
    pub fn opened(&self) -> u64 {
        self.opened.load(SeqCst)
    }

    /// Returns the number of closed handlers.
    pub fn closed(&self) -> u64 {
        self.closed.load(SeqCst)
    }

    /// Returns the number of handlers that were dropped without being closed.
    pub fn leaked(&self) -> u64 {
        self.leaked.load(SeqCst)
    }

    /// Returns the number of calls that reached a handler.
    pub fn entered(&self) -> u64 {
        self.entered.load(SeqCst)
    }

    /// Returns the number of calls that completed.
    pub fn finished(&self) -> u64 {
        self.finished.load(SeqCst)
    }

    /// Returns the number of calls that were dropped before they completed.
    pub fn abandoned(&self) -> u64 {
        self.abandoned.load(SeqCst)
    }

    /// Returns the number of threads that calls have occupied.
    pub fn busy_threads(&self) -> usize {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Keeps the thread busy for a while.
    pub(crate) fn spin(&self) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).insert(thread::current().id());
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
    }

    /// Opens the gate, for current and future waiters.
    pub fn open_gate(&self) {
        self.gate.store(true, SeqCst);
    }

    /// Waits until the gate is open.
    pub async fn pass_gate(&self) {
        while !self.gate.load(SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Blocks the thread until the gate is open, up to ten seconds so that a failing test does not hang.
    pub fn block_at_gate(&self) {
        let start = Instant::now();
        while !self.gate.load(SeqCst) && start.elapsed() < Duration::from_secs(10) {
            #[expect(clippy::disallowed_methods, reason = "an adapter that blocks")]
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn opening(self: &Arc<Self>) -> Entry {
        self.opened.fetch_add(1, SeqCst);
        Entry { ledger: self.clone(), closed: false }
    }
}

/// The entry of one handler in a ledger.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) ledger: Arc<Ledger>,
    closed: bool,
}

impl Entry {
    pub(crate) fn close(mut self) {
        self.closed = true;
        self.ledger.closed.fetch_add(1, SeqCst);
    }

    pub(crate) fn call(&self) -> Call {
        self.ledger.entered.fetch_add(1, SeqCst);
        Call { ledger: self.ledger.clone(), finished: false }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.closed {
            self.ledger.leaked.fetch_add(1, SeqCst);
        }
    }
}

/// A call in progress.
pub(crate) struct Call {
    ledger: Arc<Ledger>,
    finished: bool,
}

impl Call {
    pub(crate) fn finish(mut self) {
        self.finished = true;
        self.ledger.finished.fetch_add(1, SeqCst);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.finished {
            self.ledger.abandoned.fetch_add(1, SeqCst);
        }
    }
}
