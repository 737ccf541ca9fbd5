use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use mixer_adapter_core::{Grant, QuotaRequest, metrics::events};

use super::{
    counter::{Counter, Span},
    limits::Limit,
};

/// Counters are kept in parts with a lock each, so that calls seldom wait for each other.
const SHARDS: usize = 16;

/// How often a part forgets what is no longer in use.
const SWEEP: Duration = Duration::from_secs(10);

/// How often a part that is full looks for what is no longer in use.
const SWEEP_WHEN_FULL: Duration = Duration::from_millis(100);

/// How much each part of the counters may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Combinations of a quota and its dimensions.
    counters: usize,
    /// Ticks in which something was granted that is still in use, over all counters.
    slots: usize,
}

impl Default for Room {
    /// About 130,000 counters and 4,000,000 slots in all; 150 MB if all of it is taken.
    fn default() -> Self {
        Self { counters: 8 * 1024, slots: 256 * 1024 }
    }
}

/// There is no room to remember another grant, so it cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// All counters of a handler.
#[derive(Debug)]
pub(super) struct Counters {
    shards: [Mutex<Shard>; SHARDS],
    room: Room,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    counters: HashMap<u128, Counter>,
    slots: usize,
    swept: Duration,
}

impl Counters {
    pub(super) fn new(room: Room) -> Self {
        Self { shards: Default::default(), room, refused: AtomicU64::new(0) }
    }

    /// Grants or, of a negative amount, releases. Best effort gets what there is, anybody else all or nothing. Without
    /// room for another counter nothing is granted, and that is counted.
    pub(super) fn apply(
        &self,
        counter: u128,
        limit: Limit,
        args: &QuotaRequest,
        now: Duration,
    ) -> Result<Grant, Full> {
        let shard = &self.shards[counter as usize % SHARDS];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if args.amount < 0 {
            return Ok(Grant::amount(shard.release(counter, args.amount.unsigned_abs(), now)));
        }
        let granted = shard.grant(counter, limit, args, now, self.room);
        drop(shard);
        granted.inspect_err(|_| {
            events("memquota", "calls_without_room").add(1);
            if self.refused.fetch_add(1, Relaxed) == 0 {
                tracing::warn!(
                    "memquota has no room for more counters and denies new ones until some are no longer in use: \
                     a dimension with very many values is the usual reason"
                );
            }
        })
    }

    /// How many calls were denied for want of room.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// How many counters there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let len = |shard: &Mutex<Shard>| shard.lock().map_or(0, |shard| shard.counters.len());
        self.shards.iter().map(len).sum()
    }
}

impl Shard {
    fn grant(
        &mut self,
        key: u128,
        limit: Limit,
        args: &QuotaRequest,
        now: Duration,
        room: Room,
    ) -> Result<Grant, Full> {
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
        let granted = match args.amount {
            amount if amount <= available => amount,
            _ if args.best_effort => available,
            _ => 0,
        };
        if granted == 0 {
            return Ok(Grant::nothing());
        }
        if !self.has_room(key, room) {
            self.sweep(now, SWEEP_WHEN_FULL);
            if !self.has_room(key, room) {
                return Err(Full);
            }
        }
        let counter = self.counters.entry(key).or_insert_with(|| Counter::new(limit.valid.map(Span::of)));
        let slots = counter.slots();
        counter.add(granted, now);
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

    fn has_room(&self, key: u128, room: Room) -> bool {
        self.slots < room.slots && (self.counters.len() < room.counters || self.counters.contains_key(&key))
    }

    /// Forgets the counters of which nothing is in use, if that was not done within that time.
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
        let counters = Counters::new(Room::default());
        for key in 0..100 {
            let limit = if key < 50 { MINUTE } else { CELL };
            assert!(counters.apply(key, limit, &ask(1), at(0)).is_ok());
        }
        assert_eq!(counters.len(), 100);
        // Another call in each part, when the windows have passed.
        for key in 50..66 {
            assert!(counters.apply(key, CELL, &ask(1), at(60)).is_ok());
        }
        assert_eq!(counters.len(), 50);
        // What is released is forgotten at once.
        for key in 50..100 {
            assert!(counters.apply(key, CELL, &ask(-2), at(60)).is_ok());
        }
        assert_eq!(counters.len(), 0);
    }

    #[test]
    fn a_denied_call_makes_no_counter() {
        let counters = Counters::new(Room::default());
        assert_eq!(counters.apply(1, CELL, &ask(11), at(0)), Ok(Grant::nothing()));
        assert_eq!(counters.apply(2, CELL, &ask(-1), at(0)), Ok(Grant::nothing()));
        assert_eq!(counters.len(), 0);
    }

    #[test]
    fn without_room_for_a_counter_nothing_is_granted_and_it_is_counted() {
        let counters = Counters::new(Room { counters: 1, slots: 10 });
        // The keys 16 apart are in one part.
        assert_eq!(counters.apply(0, MINUTE, &ask(1), at(0)), Ok(Grant::amount(1).valid_for(at(60))));
        assert_eq!(counters.apply(16, MINUTE, &ask(1), at(1)), Err(Full));
        assert_eq!(counters.refused(), 1);
        // Who has a counter already goes on.
        assert_eq!(counters.apply(0, MINUTE, &ask(1), at(2)), Ok(Grant::amount(1).valid_for(at(60))));
        // There is room again as soon as the first counter is no longer in use.
        assert_eq!(counters.apply(16, MINUTE, &ask(1), at(62)), Ok(Grant::amount(1).valid_for(at(60))));
        assert_eq!(counters.refused(), 1);
    }

    #[test]
    fn without_room_for_a_slot_nothing_is_granted() {
        let counters = Counters::new(Room { counters: 10, slots: 2 });
        for second in 0..2 {
            assert!(counters.apply(0, MINUTE, &ask(1), at(second)).is_ok());
        }
        assert_eq!(counters.apply(0, MINUTE, &ask(1), at(2)), Err(Full));
        assert_eq!(counters.apply(0, MINUTE, &ask(-1), at(2)), Ok(Grant::amount(1)));
        assert!(counters.apply(0, MINUTE, &ask(1), at(2)).is_ok());
        assert_eq!(counters.apply(0, MINUTE, &ask(1), at(60)), Ok(Grant::amount(1).valid_for(at(60))));
    }
}
