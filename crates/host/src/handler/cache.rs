//! The cache of handlers whose configuration came with a call.
//!
//! Newcomers replace newcomers: a handler that is called again and again is not evicted for others that were called once or in
//! one burst. A policy by frequency alone, such as moka's TinyLFU, does not do that here: its counts start when the cache is
//! half full and are halved by the lookups of foreign configurations.

use parking_lot::{Mutex, RwLock};
use prost::bytes::Bytes;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::Handler;

/// Handlers by the bytes of their configuration as received: Mixer since 1.1 sends the same bytes every time.
#[derive(Debug)]
pub(super) struct HandlerCache {
    /// By the adapter's index.
    shelves: Box<[Shelf]>,
    capacity: Capacity,
    idle: Option<Duration>,
    started: Instant,
    next_order: AtomicU64,
    /// Held while handlers are evicted for others.
    evicting: Mutex<()>,
}

/// The limits of the cache. Each adapter may use more than an equal share of them as long as there is room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) handlers: usize,
    pub(super) bytes: usize,
}

/// The cached handlers of one adapter.
#[derive(Debug, Default)]
struct Shelf {
    entries: RwLock<HashMap<Bytes, Entry>>,
    handlers: AtomicUsize,
    bytes: AtomicUsize,
    evicted: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    handler: Arc<Handler>,
    bytes: usize,
    /// Identifies the entry, in the order of insertion.
    order: u64,
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

impl Shelf {
    fn amounts(&self) -> (usize, usize) {
        (self.handlers.load(Relaxed), self.bytes.load(Relaxed))
    }

    /// Adjusts the counts after an entry was added to or removed from the locked entries.
    fn recount(&self, entries: &HashMap<Bytes, Entry>, added: usize, removed: usize) {
        self.handlers.store(entries.len(), Relaxed);
        self.bytes.store(self.bytes.load(Relaxed) + added - removed, Relaxed);
    }

    fn insert(&self, config: Bytes, entry: Entry) -> Option<Arc<Handler>> {
        let mut entries = self.entries.write();
        let added = entry.bytes;
        let replaced = entries.insert(config, entry);
        self.recount(&entries, added, replaced.as_ref().map_or(0, |entry| entry.bytes));
        Some(replaced?.handler)
    }

    /// Removes an entry that was inserted at this position.
    fn evict(&self, config: &Bytes, order: u64) -> Option<Arc<Handler>> {
        let mut entries = self.entries.write();
        if entries.get(config)?.order != order {
            return None;
        }
        let entry = entries.remove(config)?;
        self.recount(&entries, 0, entry.bytes);
        self.evicted.fetch_add(1, Relaxed);
        Some(entry.handler)
    }

    fn clear(&self) -> HashMap<Bytes, Entry> {
        let mut entries = self.entries.write();
        let cleared = std::mem::take(&mut *entries);
        self.handlers.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
        cleared
    }
}

impl HandlerCache {
    /// Creates a cache for a number of adapters; a handler is evicted after `idle` without a call.
    pub(super) fn new(adapters: usize, capacity: Capacity, idle: Option<Duration>) -> Self {
        Self {
            shelves: (0..adapters).map(|_| Shelf::default()).collect(),
            capacity,
            idle,
            started: Instant::now(),
            next_order: AtomicU64::new(0),
            evicting: Mutex::new(()),
        }
    }

    pub(super) fn get(&self, adapter: usize, config: &[u8]) -> Option<Arc<Handler>> {
        let entries = self.shelves[adapter].entries.read();
        let entry = entries.get(config)?;
        entry.usage.record(self.now());
        Some(entry.handler.clone())
    }

    /// Caches a handler under a configuration, and evicts others if there are too many. A handler without room is not cached.
    pub(super) fn insert(&self, adapter: usize, config: Bytes, handler: &Arc<Handler>) {
        let bytes = config.len() + handler.bytes();
        if !self.capacity.holds(1, bytes) {
            return;
        }
        let order = self.next_order.fetch_add(1, Relaxed);
        let entry = Entry { handler: handler.clone(), bytes, order, usage: Usage::new(self.now()) };
        let replaced = self.shelves[adapter].insert(config, entry);
        // Dropped without a lock, because that may close the handler.
        drop(replaced);
        let (handlers, bytes) = self.amounts();
        if !self.capacity.holds(handlers, bytes) {
            self.make_room();
        }
    }

    /// Returns the number of cached handlers.
    pub(super) fn count(&self) -> usize {
        self.amounts().0
    }

    /// Returns the number of evictions of an adapter's handlers: for others, and after the idle time.
    pub(super) fn evicted(&self, adapter: usize) -> u64 {
        self.shelves[adapter].evicted.load(Relaxed)
    }

    /// Evicts idle handlers.
    pub(super) fn sweep(&self) {
        let Some(idle) = self.idle else { return };
        let now = self.now();
        for shelf in &self.shelves {
            let expired: Vec<_> = shelf
                .entries
                .read()
                .iter()
                .filter(|(_, entry)| entry.usage.idle(now) > idle)
                .map(|(config, entry)| (config.clone(), entry.order))
                .collect();
            for (config, order) in expired {
                shelf.evict(&config, order);
            }
        }
    }

    pub(super) fn clear(&self) {
        for shelf in &self.shelves {
            let cleared = shelf.clear();
            drop(cleared);
        }
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn amounts(&self) -> (usize, usize) {
        let amounts = self.shelves.iter().map(Shelf::amounts);
        amounts.fold((0, 0), |(handlers, bytes), (more, more_bytes)| (handlers + more, bytes + more_bytes))
    }

    /// Evicts the handlers with the lowest ranks, of adapters that use more than their share.
    fn make_room(&self) {
        let _evicting = self.evicting.lock();
        let (mut handlers, mut bytes) = self.amounts();
        if self.capacity.holds(handlers, bytes) {
            return;
        }
        let target = self.capacity.target();
        let adapters = self.shelves.len().max(1);
        let share = Capacity { handlers: target.handlers / adapters, bytes: target.bytes / adapters };
        let now = self.now();
        let mut lowest = BinaryHeap::new();
        for (index, shelf) in self.shelves.iter().enumerate() {
            let (handlers, bytes) = shelf.amounts();
            if !share.holds(handlers, bytes) {
                lowest.extend(shelf.entries.read().iter().map(|(config, entry)| {
                    Reverse((entry.usage.rank(now), entry.order, entry.bytes, index, config.clone()))
                }));
            }
        }
        while !target.holds(handlers, bytes)
            && let Some(Reverse((_, order, freed, index, config))) = lowest.pop()
        {
            let shelf = &self.shelves[index];
            let (of_adapter, bytes_of_adapter) = shelf.amounts();
            if !share.holds(of_adapter, bytes_of_adapter)
                && let Some(evicted) = shelf.evict(&config, order)
            {
                (handlers, bytes) = (handlers.saturating_sub(1), bytes.saturating_sub(freed));
                drop(evicted);
            }
        }
    }
}
