//! The counters of a handler.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use mixer_adapter_core::{Grant, LimitState, QuotaRequest, metrics::Events};

use super::{
    counter::{self, Counter, Span},
    limits::Limit,
};

/// The number of shards, each with its own lock, so that calls rarely wait for each other.
const SHARDS: usize = 16;

/// The interval at which a shard removes unused counters.
const SWEEP: Duration = Duration::from_secs(10);

/// The interval at which a full shard looks for unused counters.
const SWEEP_WHEN_FULL: Duration = Duration::from_millis(100);

/// The capacity of each shard.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Combinations of a quota and its dimensions.
    counters: usize,
    /// Ticks with grants that are still in use, over all counters.
    slots: usize,
}

impl Default for Capacity {
    /// About 130,000 counters and 4,000,000 slots in all shards, up to 150 MB.
    fn default() -> Self {
        Self { counters: 8 * 1024, slots: 256 * 1024 }
    }
}

/// The maximum number of counters or slots is reached, so a grant cannot be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the maximum number of counters is reached")]
pub struct FullError;

/// All counters of a handler.
#[derive(Debug)]
pub struct Counters {
    shards: [Mutex<Shard>; SHARDS],
    capacity: Capacity,
    without_room: Events,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    counters: HashMap<u128, Counter, RandomState>,
    slots: usize,
    swept: Duration,
}

impl Counters {
    /// Creates counters; `without_room` counts the refused calls.
    pub fn new(capacity: Capacity, without_room: Events) -> Self {
        Self { shards: Default::default(), capacity, without_room, refused: AtomicU64::new(0) }
    }

    /// Grants an amount, or releases a negative one. With best effort the available part is granted, otherwise all or nothing.
    ///
    /// # Errors
    /// The capacity is exhausted. The call is counted as refused.
    pub fn apply(
        &self,
        counter: u128,
        limit: Limit,
        request: &QuotaRequest,
        now: Duration,
    ) -> Result<Grant, FullError> {
        let shard = &self.shards[counter as usize % SHARDS];
        let mut shard = shard.lock();
        if request.amount < 0 {
            return Ok(Grant::amount(shard.release(counter, request.amount.unsigned_abs(), now)));
        }
        let granted = shard.grant(counter, limit, request, now, self.capacity);
        drop(shard);
        granted.inspect_err(|_| {
            self.without_room.add(1);
            if self.refused.fetch_add(1, Relaxed) == 0 {
                tracing::warn!(
                    "the maximum number of quota counters is reached; new ones are denied until others are unused \
                     (check for a dimension with very many values)"
                );
            }
        })
    }

    /// Returns the state of a limit after `granted` of a request of `amount`.
    pub fn state(&self, counter: u128, limit: Limit, amount: i64, granted: i64, now: Duration) -> LimitState {
        let shard = &self.shards[counter as usize % SHARDS];
        let mut shard = shard.lock();
        let Shard { counters, slots, .. } = &mut *shard;
        let (in_use, reset_after) = match counters.get_mut(&counter) {
            None => (0, limit.valid.map(|_| Duration::ZERO)),
            Some(counter) => {
                let before = counter.slots();
                let in_use = counter.in_use(now);
                *slots -= before - counter.slots();
                // The amount that has to be freed for the refused one, or else everything.
                let missing = if amount.max(1) > granted && limit.max < in_use.saturating_add(amount.max(1)) {
                    in_use.saturating_add(amount.max(1)) - limit.max
                } else {
                    in_use
                };
                (in_use, counter.free_after(missing, now))
            }
        };
        LimitState {
            max_amount: limit.max,
            remaining: (limit.max - in_use).max(0),
            window: limit.valid,
            reset_after,
        }
    }

    /// Removes unused counters, and returns an estimate of the memory of the others in bytes.
    pub fn compact(&self, now: Duration) -> usize {
        self.shards
            .iter()
            .map(|shard| {
                let mut shard = shard.lock();
                shard.sweep(now, Duration::ZERO);
                shard.counters.shrink_to_fit();
                shard.counters.values_mut().for_each(Counter::shrink);
                shard.counters.len() * size_of::<(u128, Counter)>() + shard.slots * counter::SLOT_BYTES
            })
            .sum()
    }

    /// Returns the number of counters.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().counters.len()).sum()
    }
}

impl Shard {
    fn grant(
        &mut self,
        key: u128,
        limit: Limit,
        request: &QuotaRequest,
        now: Duration,
        capacity: Capacity,
    ) -> Result<Grant, FullError> {
        self.sweep(now, SWEEP);
        let available = match self.counters.get_mut(&key) {
            Some(counter) => {
                let slots = counter.slots();
                let available = limit.max - counter.in_use(now);
                self.slots -= slots - counter.slots();
                available
            }
            None => limit.max,
        };
        let granted = match request.amount {
            amount if amount <= available || request.past_limit => amount,
            _ if request.best_effort => available.max(0),
            _ => 0,
        };
        if granted == 0 {
            return Ok(Grant::nothing());
        }
        if !self.has_capacity(key, capacity) {
            self.sweep(now, SWEEP_WHEN_FULL);
            if !self.has_capacity(key, capacity) {
                return Err(FullError);
            }
        }
        let counter = self.counters.entry(key).or_insert_with(|| Counter::new(limit.valid.map(Span::of)));
        let slots = counter.slots();
        // Amounts past the limit can be any number.
        let room = i64::MAX - counter.in_use(now);
        counter.add(granted.min(room), now);
        self.slots += counter.slots() - slots;
        Ok(Grant::amount(granted).valid_for(limit.valid.unwrap_or_default()))
    }

    fn release(&mut self, key: u128, amount: u64, now: Duration) -> i64 {
        let Some(counter) = self.counters.get_mut(&key) else { return 0 };
        let slots = counter.slots();
        let released = counter.release(amount, now);
        self.slots -= slots - counter.slots();
        if counter.in_use(now) == 0 {
            self.counters.remove(&key);
        }
        released
    }

    fn has_capacity(&self, key: u128, capacity: Capacity) -> bool {
        self.slots < capacity.slots
            && (self.counters.len() < capacity.counters || self.counters.contains_key(&key))
    }

    /// Removes unused counters, unless that was done within the interval.
    fn sweep(&mut self, now: Duration, every: Duration) {
        if now.saturating_sub(self.swept) < every {
            return;
        }
        self.swept = now;
        self.counters.retain(|_, counter| counter.in_use(now) > 0);
        self.slots = self.counters.values().map(Counter::slots).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Limit = Limit { max: 10, valid: Some(Duration::from_secs(60)) };
    const CELL: Limit = Limit { max: 10, valid: None };

    fn ask(amount: i64) -> QuotaRequest {
        QuotaRequest::new(amount)
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn counters_without_use_are_forgotten() {
        let counters = Counters::new(Capacity::default(), Events::default());
        for key in 0..100 {
            let limit = if key < 50 { MINUTE } else { CELL };
            assert!(counters.apply(key, limit, &ask(1), at(0)).is_ok());
        }
        assert_eq!(counters.len(), 100);
        // Another call in each shard, after the windows.
        for key in 50..66 {
            assert!(counters.apply(key, CELL, &ask(1), at(60)).is_ok());
        }
        assert_eq!(counters.len(), 50);
        // A released counter is removed at once.
        for key in 50..100 {
            assert!(counters.apply(key, CELL, &ask(-2), at(60)).is_ok());
        }
        assert_eq!(counters.len(), 0);
    }

    #[test]
    fn a_denied_call_makes_no_counter() {
        let counters = Counters::new(Capacity::default(), Events::default());
        assert_eq!(counters.apply(1, CELL, &ask(11), at(0)), Ok(Grant::nothing()));
        assert_eq!(counters.apply(2, CELL, &ask(-1), at(0)), Ok(Grant::nothing()));
        assert_eq!(counters.len(), 0);
    }

    #[test]
    fn without_room_for_a_counter_nothing_is_granted_and_it_is_counted() {
        let counters = Counters::new(Capacity { counters: 1, slots: 10 }, Events::default());
        // Keys 16 apart are in one shard.
        assert_eq!(counters.apply(0, MINUTE, &ask(1), at(0)), Ok(Grant::amount(1).valid_for(at(60))));
        assert_eq!(counters.apply(16, MINUTE, &ask(1), at(1)), Err(FullError));
        assert_eq!(counters.refused.load(Relaxed), 1);
        // An existing counter continues to grant.
        assert_eq!(counters.apply(0, MINUTE, &ask(1), at(2)), Ok(Grant::amount(1).valid_for(at(60))));
        // A new counter is possible as soon as the first one is unused.
        assert_eq!(counters.apply(16, MINUTE, &ask(1), at(62)), Ok(Grant::amount(1).valid_for(at(60))));
        assert_eq!(counters.refused.load(Relaxed), 1);
    }

    #[test]
    fn without_room_for_a_slot_nothing_is_granted() {
        let counters = Counters::new(Capacity { counters: 10, slots: 2 }, Events::default());
        for second in 0..2 {
            assert!(counters.apply(0, MINUTE, &ask(1), at(second)).is_ok());
        }
        assert_eq!(counters.apply(0, MINUTE, &ask(1), at(2)), Err(FullError));
        assert_eq!(counters.apply(0, MINUTE, &ask(-1), at(2)), Ok(Grant::amount(1)));
        assert!(counters.apply(0, MINUTE, &ask(1), at(2)).is_ok());
        assert_eq!(counters.apply(0, MINUTE, &ask(1), at(60)), Ok(Grant::amount(1).valid_for(at(60))));
    }
}
