//! A store of states that are in use or retained, limited by time and bytes.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    hash::Hash,
    ops::Deref,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use super::Retain;
use crate::locked::locked;

/// The limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionLimits {
    /// The maximum memory of unused states, in bytes.
    pub bytes: usize,
    /// How long a state is retained after its last use.
    pub time: Duration,
}

impl RetentionLimits {
    /// Limits the memory and the time.
    pub const fn new(bytes: usize, time: Duration) -> Self {
        Self { bytes, time }
    }
}

/// States by key. An unused one is retained for some time.
///
/// If retained states exceed the limit in bytes, the store evicts the states with the shortest use span first (by powers of two), then
/// the least recently used. So the states of a flood replace each other, and not a state that has been used for longer.
pub struct Retention<K, T: ?Sized> {
    limits: RetentionLimits,
    states: Mutex<States<K, T>>,
}

struct States<K, T: ?Sized> {
    entries: HashMap<K, Stored<T>>,
    /// The keys of retained states in the order in which they are evicted.
    retained: BTreeMap<Rank, K>,
    bytes: usize,
    sequence: u64,
    evicted: u64,
}

/// The power of two of the seconds between the first and the last use, and the number of the release.
type Rank = (u32, u64);

struct Stored<T: ?Sized> {
    state: Arc<T>,
    created: Instant,
    /// The number of the last acquisition.
    acquired: u64,
    usage: Usage,
}

enum Usage {
    /// The number of leases.
    Used(usize),
    Retained {
        since: Instant,
        bytes: usize,
        rank: Rank,
    },
}

/// The memory that an entry takes in addition to its state.
const ENTRY_BYTES: usize = 256;

/// A state of the store.
#[derive(Debug)]
#[non_exhaustive]
pub struct Entry<T: ?Sized> {
    /// The state.
    pub state: Arc<T>,
    /// Whether it has a user.
    pub is_used: bool,
    /// The number of its last acquisition, which grows from one acquisition of any state to the next.
    pub acquired: u64,
}

impl<K: Eq + Hash + Clone, T: Retain + ?Sized> Retention<K, T> {
    /// Creates an empty store.
    pub fn new(limits: RetentionLimits) -> Self {
        let states =
            States { entries: HashMap::new(), retained: BTreeMap::new(), bytes: 0, sequence: 0, evicted: 0 };
        Self { limits, states: Mutex::new(states) }
    }

    /// Returns the state of a key, created if necessary. It is in use until the lease is dropped.
    pub fn acquire(self: &Arc<Self>, key: K, now: Instant, create: impl FnOnce() -> Arc<T>) -> Lease<K, T> {
        let mut states = locked(&self.states);
        let sequence = states.next();
        let expired = states.expire(&key, now, self.limits.time);
        let state = match states.entries.get_mut(&key) {
            Some(stored) => {
                stored.acquired = sequence;
                let state = stored.state.clone();
                match &mut stored.usage {
                    Usage::Used(leases) => *leases += 1,
                    Usage::Retained { bytes, rank, .. } => {
                        let (bytes, rank) = (*bytes, *rank);
                        stored.usage = Usage::Used(1);
                        states.bytes -= bytes;
                        states.retained.remove(&rank);
                    }
                }
                state
            }
            None => {
                let state = create();
                let usage = Usage::Used(1);
                let stored = Stored { state: state.clone(), created: now, acquired: sequence, usage };
                states.entries.insert(key.clone(), stored);
                state
            }
        };
        drop(states);
        drop(expired);
        Lease { store: self.clone(), key, state }
    }

    /// Removes the states whose time has passed.
    pub fn sweep(&self, now: Instant) {
        let mut states = locked(&self.states);
        let keys: Vec<K> = states.retained.values().cloned().collect();
        let expired: Vec<_> =
            keys.iter().filter_map(|key| states.expire(key, now, self.limits.time)).collect();
        drop(states);
        drop(expired);
    }

    /// Returns all states with their keys.
    pub fn entries(&self) -> Vec<(K, Entry<T>)> {
        let states = locked(&self.states);
        let entries = states.entries.iter().map(|(key, stored)| {
            let is_used = matches!(stored.usage, Usage::Used(_));
            (key.clone(), Entry { state: stored.state.clone(), is_used, acquired: stored.acquired })
        });
        entries.collect()
    }

    /// Returns the number of unused states.
    pub fn retained_count(&self) -> usize {
        locked(&self.states).retained.len()
    }

    /// Returns the memory of unused states, in bytes.
    pub fn retained_bytes(&self) -> usize {
        locked(&self.states).bytes
    }

    /// Returns the number of states that were evicted before their time.
    pub fn evicted(&self) -> u64 {
        locked(&self.states).evicted
    }

    /// Ends one use of a state.
    fn release(&self, key: &K, state: &Arc<T>) {
        let now = Instant::now();
        let mut measured = None;
        // The last user measures the state without the lock, and again if there was another user in the meantime.
        let (mut states, held) = loop {
            let mut states = locked(&self.states);
            let Some(stored) = states.entries.get_mut(key) else { return };
            if let Usage::Used(leases) = &mut stored.usage
                && *leases > 1
            {
                *leases -= 1;
                return;
            }
            let acquired = stored.acquired;
            match measured {
                Some((of, held)) if of == acquired => break (states, held),
                _ => {
                    drop(states);
                    measured = Some((acquired, state.bytes()));
                }
            }
        };
        let bytes = held.saturating_add(ENTRY_BYTES);
        let sequence = states.next();
        let Some(stored) = states.entries.get_mut(key) else { return };
        let mut removed = Vec::new();
        if held == 0 || bytes > self.limits.bytes || self.limits.time.is_zero() {
            removed.extend(states.entries.remove(key));
            states.evicted += u64::from(bytes > self.limits.bytes);
        } else {
            let age = now.saturating_duration_since(stored.created);
            let rank = (age.as_secs().max(1).ilog2(), sequence);
            stored.usage = Usage::Retained { since: now, bytes, rank };
            states.retained.insert(rank, key.clone());
            states.bytes += bytes;
            while states.bytes > self.limits.bytes
                && let Some((_, key)) = states.retained.pop_first()
            {
                removed.extend(states.remove(&key));
                states.evicted += 1;
            }
        }
        // Dropped without the lock, because the states may be large.
        drop(states);
        drop(removed);
    }
}

impl<K: Eq + Hash, T: ?Sized> States<K, T> {
    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Removes a state if its time has passed.
    fn expire(&mut self, key: &K, now: Instant, time: Duration) -> Option<Stored<T>> {
        match self.entries.get(key)?.usage {
            Usage::Retained { since, .. } if now.saturating_duration_since(since) >= time => self.remove(key),
            Usage::Retained { .. } | Usage::Used(_) => None,
        }
    }

    fn remove(&mut self, key: &K) -> Option<Stored<T>> {
        let stored = self.entries.remove(key)?;
        if let Usage::Retained { bytes, rank, .. } = stored.usage {
            self.bytes -= bytes;
            self.retained.remove(&rank);
        }
        Some(stored)
    }
}

impl<K, T: ?Sized> fmt::Debug for Retention<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retention").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A use of a state, until it is dropped.
#[derive(Debug)]
pub struct Lease<K: Eq + Hash + Clone, T: Retain + ?Sized> {
    store: Arc<Retention<K, T>>,
    key: K,
    state: Arc<T>,
}

impl<K: Eq + Hash + Clone, T: Retain + ?Sized> Lease<K, T> {
    /// Returns the state.
    pub fn state(&self) -> &Arc<T> {
        &self.state
    }
}

impl<K: Eq + Hash + Clone, T: Retain + ?Sized> Deref for Lease<K, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.state
    }
}

impl<K: Eq + Hash + Clone, T: Retain + ?Sized> Drop for Lease<K, T> {
    fn drop(&mut self) {
        self.store.release(&self.key, &self.state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    /// A state of a size.
    #[derive(Debug)]
    struct Sized(AtomicUsize);

    impl Retain for Sized {
        fn bytes(&self) -> usize {
            self.0.load(Relaxed)
        }
    }

    const TIME: Duration = Duration::from_secs(60);

    fn store(bytes: usize) -> Arc<Retention<&'static str, Sized>> {
        Arc::new(Retention::new(RetentionLimits::new(bytes, TIME)))
    }

    fn acquire(
        store: &Arc<Retention<&'static str, Sized>>,
        key: &'static str,
        now: Instant,
    ) -> Lease<&'static str, Sized> {
        store.acquire(key, now, || Arc::new(Sized(AtomicUsize::new(0))))
    }

    /// Uses a state that takes 1000 bytes then, and returns whether it was new.
    fn use_once(store: &Arc<Retention<&'static str, Sized>>, key: &'static str, now: Instant) -> bool {
        acquire(store, key, now).0.swap(1000 - ENTRY_BYTES, Relaxed) == 0
    }

    #[test]
    fn a_state_without_a_user_is_retained_for_its_time() {
        let (store, start) = (store(10_000), Instant::now());
        assert!(use_once(&store, "a", start));
        assert!(!use_once(&store, "a", start));
        assert_eq!((store.retained_count(), store.retained_bytes()), (1, 1000));
        let later = Instant::now() + TIME;
        assert!(use_once(&store, "a", later), "its time has passed");
        store.sweep(start);
        assert_eq!(store.retained_count(), 1);
        store.sweep(Instant::now() + TIME);
        assert_eq!((store.retained_count(), store.retained_bytes(), store.evicted()), (0, 0, 0));
    }

    #[test]
    fn a_state_in_use_is_shared_and_neither_expires_nor_counts() {
        let (store, start) = (store(10), Instant::now());
        let first = acquire(&store, "a", start);
        let second = acquire(&store, "a", start);
        first.0.store(1_000_000, Relaxed);
        drop(first);
        store.sweep(start + 2 * TIME);
        assert_eq!(second.bytes(), 1_000_000);
        assert_eq!((store.entries().len(), store.retained_bytes()), (1, 0));
    }

    #[test]
    fn a_state_with_nothing_to_lose_is_not_retained() {
        let store = store(10_000);
        drop(acquire(&store, "a", Instant::now()));
        assert_eq!((store.entries().len(), store.evicted()), (0, 0));
    }

    #[test]
    fn states_beyond_the_bytes_are_evicted_and_counted() {
        let (store, now) = (store(2000), Instant::now());
        for key in ["a", "b", "a", "c"] {
            use_once(&store, key, now);
        }
        assert_eq!((store.retained_bytes(), store.evicted()), (2000, 1));
        assert!(!use_once(&store, "a", now), "it was used after b");
        assert!(use_once(&store, "b", now));
        acquire(&store, "large", now).0.store(3000, Relaxed);
        assert_eq!(
            (store.retained_bytes(), store.evicted()),
            (2000, 3),
            "without room, it takes none of the others'"
        );
    }

    #[test]
    fn a_flood_does_not_evict_a_state_that_was_used_for_longer() {
        let (store, now) = (store(3000), Instant::now());
        let established = acquire(&store, "established", now);
        established.0.store(1000 - ENTRY_BYTES, Relaxed);
        // Those of the flood begin later, by the clock of the test.
        let flood = now + TIME;
        locked(&store.states).entries.values_mut().for_each(|stored| {
            stored.created = now.checked_sub(Duration::from_secs(8)).unwrap_or(now);
        });
        drop(established);
        for key in ["1", "2", "3", "4", "5", "6"] {
            use_once(&store, key, flood);
        }
        assert!(!use_once(&store, "established", now));
        assert_eq!(store.evicted(), 4);
    }
}
