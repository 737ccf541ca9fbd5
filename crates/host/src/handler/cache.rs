//! The cache of handlers whose configuration came with a call.
//!
//! Newcomers replace newcomers: a handler that is called again and again is not evicted for others that were called once or in
//! one burst. A policy by frequency alone, such as moka's TinyLFU, does not do that here: its counts start when the cache is
//! half full and are halved by the lookups of foreign configurations.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::RwLock;
use prost::bytes::Bytes;

use super::Handler;

/// Handlers by the bytes of their configuration as received: Mixer since 1.1 sends the same bytes every time.
#[derive(Debug)]
pub(super) struct HandlerCache {
    /// By the adapter's index.
    adapters: RwLock<Box<[Cached]>>,
    capacity: Capacity,
    idle: Option<Duration>,
    superseded: Duration,
    started: Instant,
}

/// The limits of the cache. Each adapter may use more than an equal share of them as long as there is room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) handlers: usize,
    pub(super) bytes: usize,
}

/// The cached handlers of one adapter.
#[derive(Debug, Default)]
struct Cached {
    entries: HashMap<Bytes, Entry>,
    bytes: usize,
    evicted: u64,
    /// When the last handler was added, in milliseconds since the start of the cache.
    added: u64,
}

#[derive(Debug)]
struct Entry {
    handler: Arc<Handler>,
    bytes: usize,
    usage: Usage,
}

/// The use of an entry. Times are in milliseconds since the start of the cache.
#[derive(Debug)]
struct Usage {
    last: AtomicU64,
    /// The number of calls, up to [`CALLS`].
    calls: AtomicU32,
    /// The number of periods of [`PERIOD`] with a call.
    periods: AtomicU32,
}

/// The worth of an entry: entries with the lowest rank are evicted first. Regular use over time counts most, then the number of
/// calls, then the time of the last call.
type Rank = (u32, u32, u64);

/// Calls within this time (in milliseconds) count once as regular use.
const PERIOD: u64 = 10_000;

/// More calls than this do not raise the rank.
const CALLS: u32 = 16;

/// Eviction makes room for this part of the capacity, so that not every insertion has to look at all entries.
const BATCH: usize = 128;

impl Capacity {
    /// Returns the amounts down to which handlers are evicted.
    fn target(self) -> Self {
        Self { handlers: self.handlers - self.handlers / BATCH, bytes: self.bytes - self.bytes / BATCH }
    }

    /// Returns whether these amounts are within the capacity.
    fn holds(self, handlers: usize, bytes: usize) -> bool {
        handlers <= self.handlers && bytes <= self.bytes
    }
}

impl Usage {
    fn new(now: u64) -> Self {
        Self { last: now.into(), calls: 1.into(), periods: 1.into() }
    }

    /// Records a call. Concurrent calls may be counted as one.
    fn record(&self, now: u64) {
        let last = self.last.load(Relaxed);
        if last != now {
            self.last.store(now, Relaxed);
        }
        if last / PERIOD != now / PERIOD {
            self.periods.store(self.periods.load(Relaxed).saturating_add(1), Relaxed);
        }
        let calls = self.calls.load(Relaxed);
        if calls < CALLS {
            self.calls.store(calls + 1, Relaxed);
        }
    }

    fn idle(&self, now: u64) -> Duration {
        Duration::from_millis(now.saturating_sub(self.last.load(Relaxed)))
    }

    /// Regular use loses its weight as the entry stays unused for longer than it was used.
    fn rank(&self, now: u64) -> Rank {
        let idle_periods = self.idle(now).as_millis() as u64 / PERIOD;
        let regular =
            self.periods.load(Relaxed).max(1).ilog2().saturating_sub((idle_periods / 8 + 1).ilog2());
        (regular, self.calls.load(Relaxed).max(1).ilog2(), self.last.load(Relaxed))
    }
}

impl Cached {
    fn insert(&mut self, config: Bytes, entry: Entry) -> Option<Entry> {
        self.bytes += entry.bytes;
        self.added = entry.usage.last.load(Relaxed);
        let replaced = self.entries.insert(config, entry)?;
        self.bytes -= replaced.bytes;
        Some(replaced)
    }

    fn evict(&mut self, config: &Bytes) -> Option<Entry> {
        let entry = self.entries.remove(config)?;
        self.bytes -= entry.bytes;
        self.evicted += 1;
        Some(entry)
    }
}

/// Returns the number of handlers and their memory.
fn amounts(adapters: &[Cached]) -> (usize, usize) {
    let amounts = adapters.iter().map(|cached| (cached.entries.len(), cached.bytes));
    amounts.fold((0, 0), |(handlers, bytes), (more, more_bytes)| (handlers + more, bytes + more_bytes))
}

impl HandlerCache {
    /// Creates a cache for a number of adapters. A handler is evicted after `idle` without a call, or after `superseded` if another one of
    /// its adapter was added since its last call.
    pub(super) fn new(
        adapters: usize,
        capacity: Capacity,
        idle: Option<Duration>,
        superseded: Duration,
    ) -> Self {
        let adapters = RwLock::new((0..adapters).map(|_| Cached::default()).collect());
        Self { adapters, capacity, idle, superseded, started: Instant::now() }
    }

    pub(super) fn get(&self, adapter: usize, config: &[u8]) -> Option<Arc<Handler>> {
        let adapters = self.adapters.read();
        let entry = adapters[adapter].entries.get(config)?;
        entry.usage.record(self.now());
        Some(entry.handler.clone())
    }

    /// Caches a handler under a configuration, and evicts others if there are too many. A handler without room is not cached.
    pub(super) fn insert(&self, adapter: usize, config: Bytes, handler: &Arc<Handler>) {
        let bytes = config.len() + handler.bytes();
        if !self.capacity.holds(1, bytes) {
            return;
        }
        let entry = Entry { handler: handler.clone(), bytes, usage: Usage::new(self.now()) };
        let mut adapters = self.adapters.write();
        let replaced = adapters[adapter].insert(config, entry);
        let evicted = self.make_room(&mut adapters);
        drop(adapters);
        // Dropped without the lock, because that may close handlers.
        drop((replaced, evicted));
    }

    /// Returns the number of cached handlers.
    pub(super) fn count(&self) -> usize {
        amounts(&self.adapters.read()).0
    }

    /// Returns the number of evictions of an adapter's handlers: for others, and after the idle time.
    pub(super) fn evicted(&self, adapter: usize) -> u64 {
        self.adapters.read()[adapter].evicted
    }

    /// Evicts idle handlers.
    pub(super) fn sweep(&self) {
        let now = self.now();
        let mut evicted = Vec::new();
        for cached in &mut self.adapters.write()[..] {
            let added = cached.added;
            let expired = cached.entries.iter().filter(|(_, Entry { usage, .. })| {
                let is_superseded = usage.last.load(Relaxed) < added && usage.idle(now) > self.superseded;
                is_superseded || self.idle.is_some_and(|idle| usage.idle(now) > idle)
            });
            let expired: Vec<Bytes> = expired.map(|(config, _)| config.clone()).collect();
            evicted.extend(expired.iter().filter_map(|config| cached.evict(config)));
        }
        drop(evicted);
    }

    pub(super) fn clear(&self) {
        let mut cleared = Vec::new();
        for cached in &mut self.adapters.write()[..] {
            cached.bytes = 0;
            cleared.push(std::mem::take(&mut cached.entries));
        }
        drop(cleared);
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Evicts the handlers with the lowest ranks, of adapters that use more than their share.
    fn make_room(&self, adapters: &mut [Cached]) -> Vec<Entry> {
        let (mut handlers, mut bytes) = amounts(adapters);
        let mut evicted = Vec::new();
        if self.capacity.holds(handlers, bytes) {
            return evicted;
        }
        let (target, now) = (self.capacity.target(), self.now());
        let share =
            Capacity { handlers: target.handlers / adapters.len(), bytes: target.bytes / adapters.len() };
        let mut lowest = Vec::new();
        for (index, cached) in adapters.iter().enumerate() {
            if !share.holds(cached.entries.len(), cached.bytes) {
                let ranks = cached.entries.iter().map(|(config, entry)| (entry.usage.rank(now), config));
                lowest.extend(ranks.map(|(rank, config)| (rank, index, config.clone())));
            }
        }
        lowest.sort_unstable();
        for (_, index, config) in lowest {
            if target.holds(handlers, bytes) {
                break;
            }
            let cached = &mut adapters[index];
            if !share.holds(cached.entries.len(), cached.bytes)
                && let Some(entry) = cached.evict(&config)
            {
                (handlers, bytes) = (handlers - 1, bytes - entry.bytes);
                evicted.push(entry);
            }
        }
        evicted
    }
}
