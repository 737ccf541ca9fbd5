//! The entries of a cache, bounded in bytes and in number. moka has bounds, too, but no shares of tenants
//! (docs/decisions/0015-check-cache.md).

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::signature::Key;

/// Values by key, in shards with separate locks.
///
/// A full shard evicts from the tenant with most bytes in it, so that no tenant evicts entries of a smaller one. Within a tenant the
/// oldest entry is evicted first, unless it was used since it was last considered.
pub(super) struct Store<V> {
    shards: Box<[Mutex<Shard<V>>]>,
    /// Maximum size of a shard in bytes.
    max_bytes: usize,
    /// Maximum number of entries of a shard.
    max_entries: usize,
}

struct Shard<V> {
    entries: HashMap<Key, Entry<V>, RandomState>,
    /// By number of the tenant.
    tenants: Vec<Tenant>,
    bytes: usize,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    tenant: usize,
    /// Whether it was used since it was last considered for eviction.
    used: bool,
}

#[derive(Default)]
struct Tenant {
    bytes: usize,
    /// The keys of its entries, oldest first.
    queue: VecDeque<Key>,
}

/// The size of an entry in addition to its value: the key in the map and in the queue, and the allocation of the value.
const ENTRY_OVERHEAD: usize = 2 * (size_of::<Key>() + size_of::<Entry<()>>()) + 64;

/// Maximum number of entries that one eviction passes over because they were used.
const MAX_PASSED: usize = 16;

/// An entry takes at most this part of a shard.
const MAX_PART: usize = 4;

impl<V: Clone> Store<V> {
    pub(super) fn new(max_bytes: usize, max_entries: usize) -> Self {
        // A small store has fewer shards, so that the limits of a shard are not too small.
        let shards = (max_bytes >> 20).min(max_entries >> 6).clamp(1, 16);
        Self {
            shards: (0..shards).map(|_| Mutex::new(Shard::default())).collect(),
            max_bytes: max_bytes / shards,
            max_entries: max_entries / shards,
        }
    }

    fn with<T>(&self, key: &Key, act: impl FnOnce(&mut Shard<V>) -> T) -> T {
        let shard = &self.shards[key.bits() as usize % self.shards.len()];
        act(&mut shard.lock())
    }

    pub(super) fn get(&self, key: &Key) -> Option<V> {
        self.with(key, |shard| {
            let entry = shard.entries.get_mut(key)?;
            entry.used = true;
            Some(entry.value.clone())
        })
    }

    /// Sets the value of a key, of a size in bytes. Returns the number of evicted entries.
    pub(super) fn insert(&self, key: Key, tenant: usize, bytes: usize, value: V) -> u64 {
        let bytes = bytes + ENTRY_OVERHEAD;
        if bytes > self.max_bytes / MAX_PART {
            return 0;
        }
        self.with(&key, |shard| {
            shard.insert(key, tenant, bytes, value);
            let mut evicted = 0;
            while shard.bytes > self.max_bytes || shard.entries.len() > self.max_entries {
                shard.evict();
                evicted += 1;
            }
            evicted
        })
    }

    /// Replaces the value of the key if it is the expected one, and returns whether it was.
    pub(super) fn replace(
        &self,
        key: &Key,
        bytes: usize,
        value: V,
        is_expected: impl FnOnce(&V) -> bool,
    ) -> bool {
        self.with(key, |shard| {
            let is_current = shard.entries.get(key).is_some_and(|entry| is_expected(&entry.value));
            if is_current {
                shard.replace(key, bytes + ENTRY_OVERHEAD, value);
            }
            is_current
        })
    }

    /// The number of entries, and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        let shards = self.shards.iter().map(|shard| shard.lock());
        shards.fold((0, 0), |(entries, bytes), shard| (entries + shard.entries.len(), bytes + shard.bytes))
    }

    /// Removes all entries.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            *shard.lock() = Shard::default();
        }
    }
}

impl<V> Default for Shard<V> {
    fn default() -> Self {
        Self { entries: HashMap::default(), tenants: Vec::new(), bytes: 0 }
    }
}

impl<V> Shard<V> {
    fn insert(&mut self, key: Key, tenant: usize, bytes: usize, value: V) {
        if self.entries.contains_key(&key) {
            return self.replace(&key, bytes, value);
        }
        if self.tenants.len() <= tenant {
            self.tenants.resize_with(tenant + 1, Tenant::default);
        }
        self.tenants[tenant].bytes += bytes;
        self.tenants[tenant].queue.push_back(key);
        self.bytes += bytes;
        self.entries.insert(key, Entry { value, bytes, tenant, used: false });
    }

    fn replace(&mut self, key: &Key, bytes: usize, value: V) {
        if let Some(entry) = self.entries.get_mut(key) {
            self.bytes = self.bytes - entry.bytes + bytes;
            let tenant = &mut self.tenants[entry.tenant];
            tenant.bytes = tenant.bytes - entry.bytes + bytes;
            (entry.value, entry.bytes) = (value, bytes);
        }
    }

    fn evict(&mut self) {
        let Some(tenant) = self.tenants.iter_mut().max_by_key(|tenant| tenant.bytes) else { return };
        for passed in 0.. {
            let Some(key) = tenant.queue.pop_front() else { return };
            match self.entries.get_mut(&key) {
                Some(entry) if entry.used && passed < MAX_PASSED => {
                    entry.used = false;
                    tenant.queue.push_back(key);
                }
                Some(entry) => {
                    tenant.bytes -= entry.bytes;
                    self.bytes -= entry.bytes;
                    self.entries.remove(&key);
                    return;
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::of(&number.to_le_bytes())
    }

    /// A store of one shard for ten entries of 1000 bytes.
    fn store() -> Store<usize> {
        Store::new(10 * (1000 + ENTRY_OVERHEAD), usize::MAX)
    }

    fn insert(store: &Store<usize>, numbers: impl IntoIterator<Item = usize>, tenant: usize) -> u64 {
        numbers.into_iter().map(|number| store.insert(key(number), tenant, 1000, number)).sum()
    }

    #[test]
    fn bytes_are_bounded_and_entries_that_are_used_stay() {
        let store = store();
        assert_eq!(insert(&store, 0..10, 0), 0);
        assert_eq!(store.get(&key(0)), Some(0));
        assert_eq!(insert(&store, 10..15, 0), 5);
        assert_eq!(store.size(), (10, 10 * (1000 + ENTRY_OVERHEAD)));
        let present: Vec<usize> = (0..15).filter(|number| store.get(&key(*number)).is_some()).collect();
        assert_eq!(present, [0, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    }

    #[test]
    fn a_value_that_replaces_another_counts_once() {
        let store = store();
        insert(&store, [1, 1, 1], 0);
        store.insert(key(1), 0, 2000, 7);
        assert_eq!(store.size(), (1, 2000 + ENTRY_OVERHEAD));
        assert_eq!(store.get(&key(1)), Some(7));
        assert!(!store.replace(&key(1), 5, 9, |value| *value == 8));
        assert!(!store.replace(&key(2), 5, 9, |_| true));
        assert!(store.replace(&key(1), 5, 9, |value| *value == 7));
        assert_eq!(store.size(), (1, 5 + ENTRY_OVERHEAD));
        assert_eq!(store.get(&key(1)), Some(9));
        store.clear();
        assert_eq!(store.size(), (0, 0));
    }

    #[test]
    fn a_large_value_does_not_displace_everything_else() {
        let store = store();
        insert(&store, 0..10, 0);
        assert_eq!(store.insert(key(10), 0, 5000, 10), 0);
        assert_eq!(store.size().0, 10);
    }

    #[test]
    fn a_tenant_evicts_only_its_own_entries_once_it_has_the_most() {
        let store = store();
        insert(&store, 0..3, 1);
        insert(&store, 100..1000, 2);
        let left: Vec<usize> = (0..1000).filter(|number| store.get(&key(*number)).is_some()).collect();
        assert_eq!(left.len(), 10);
        assert_eq!(left[..3], [0, 1, 2]);
        // The first tenant can grow up to an equal share.
        insert(&store, 3..8, 1);
        let left = (0..8).filter(|number| store.get(&key(*number)).is_some()).count();
        assert_eq!(left, 5);
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let store = Store::new(usize::MAX, 3);
        assert_eq!(insert(&store, 0..5, 0), 2);
        assert_eq!(store.size().0, 3);
    }

    #[test]
    fn an_eviction_considers_a_bounded_number_of_entries() {
        let store = Store::new(usize::MAX, 63);
        insert(&store, 0..63, 0);
        assert!((0..63).all(|number| store.get(&key(number)).is_some()));
        insert(&store, [63], 0);
        assert!(store.get(&key(MAX_PASSED)).is_none(), "the one after those that were passed over");
    }
}
