//! Leases: amounts that the store counts as in use, and that a server grants from memory. A machine without socket or clock
//! (docs/decisions/0020-leases.md).

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use mixer_adapter_quota::SharedFingerprint;

use super::window::Window;

/// The smallest limit with leases: a lease is at most a hundredth of the limit.
pub(super) const SMALLEST_LIMIT: i64 = 200;
/// The maximum number of counters with leases. Others make a trip for each request.
const MOST_COUNTERS: usize = 64 * 1024;

/// A window and its limit, for which leases are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leased {
    pub(super) counter: SharedFingerprint,
    pub(super) window: Window,
    pub(super) max: i64,
}

/// The end of a lease: the store counts `used` and frees the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Return {
    pub(super) id: u64,
    pub(super) used: i64,
}

/// What a trip to the store does besides its own amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trip {
    /// The lease that ends.
    pub(super) returned: Option<Return>,
    /// The amount of the next lease, of which the store can give a part, and its id.
    pub(super) wanted: i64,
    pub(super) id: u64,
}

/// A lease that the store has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) amount: i64,
    /// How long it may be used, from the time when the trip began.
    pub(super) life: Duration,
    /// How long a grant is valid, from then; only in a fixed window, which ends as a whole.
    pub(super) window_end: Option<Duration>,
    /// The amount that the store had for others.
    pub(super) remaining: i64,
    /// How long until nothing is in use, from then.
    pub(super) reset_after: Duration,
}

/// A grant from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeasedGrant {
    /// How long it is valid; `None` for the whole window.
    pub(super) valid: Option<Duration>,
    pub(super) remaining: i64,
    pub(super) reset_after: Duration,
}

/// How a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Grant(LeasedGrant),
    Trip(Trip),
}

/// The leases of a server.
#[derive(Debug)]
pub(super) struct Leases {
    counters: HashMap<SharedFingerprint, Counter>,
    last_id: u64,
}

#[derive(Debug)]
struct Counter {
    leased: Leased,
    quota: Arc<str>,
    lease: Option<Lease>,
    /// The amount of the next lease.
    size: i64,
    /// The id of the lease that a trip is taking.
    taking: Option<u64>,
    is_idle: bool,
}

#[derive(Debug)]
struct Lease {
    id: u64,
    given: Given,
    begin: Duration,
    used: i64,
}

impl Lease {
    fn is_over(&self, now: Duration) -> bool {
        now >= self.begin + self.given.life
    }

    fn grant(&self, now: Duration) -> LeasedGrant {
        let since = now.saturating_sub(self.begin);
        LeasedGrant {
            valid: self.given.window_end.map(|end| end.saturating_sub(since)),
            remaining: self.given.remaining + self.given.amount - self.used,
            reset_after: self.given.reset_after.saturating_sub(since),
        }
    }

    fn end(&self) -> Return {
        Return { id: self.id, used: self.used }
    }
}

impl Leases {
    /// Creates a server without leases. Ids count from `first_id`, and must differ from those of all other handlers.
    pub(super) fn new(first_id: u64) -> Self {
        Self { counters: HashMap::new(), last_id: first_id }
    }

    /// Grants an amount from a lease, or returns the trip that is necessary. After one that wants a lease comes
    /// [`taken`](Self::taken) or [`failed`](Self::failed).
    pub(super) fn request(&mut self, leased: Leased, quota: &str, amount: i64, now: Duration) -> Step {
        let without_lease = Step::Trip(Trip::default());
        if !self.counters.contains_key(&leased.counter) && self.counters.len() >= MOST_COUNTERS {
            return without_lease;
        }
        let new =
            || Counter { leased, quota: quota.into(), lease: None, size: 0, taking: None, is_idle: false };
        let counter = self.counters.entry(leased.counter).or_insert_with(new);
        counter.is_idle = false;
        // A caller can set another limit for the same counter.
        if counter.leased != leased || counter.taking.is_some() {
            return without_lease;
        }
        if let Some(lease) = counter.lease.as_mut().filter(|lease| !lease.is_over(now))
            && amount <= lease.given.amount - lease.used
        {
            lease.used += amount;
            return Step::Grant(lease.grant(now));
        }
        let last = counter.lease.take();
        // A lease that was used up doubles the next one. Otherwise the next one is what was used in its life, and as much again.
        counter.size = match &last {
            Some(lease) if lease.is_over(now) => lease.used.saturating_mul(2),
            _ => counter.size.saturating_mul(2),
        };
        counter.size = counter.size.max(amount);
        self.last_id += 1;
        counter.taking = Some(self.last_id);
        Step::Trip(Trip { returned: last.as_ref().map(Lease::end), wanted: counter.size, id: self.last_id })
    }

    /// Takes an amount back that was granted from a lease; otherwise the store has to.
    pub(super) fn release(&mut self, leased: Leased, amount: i64, now: Duration) -> Step {
        let counter = self.counters.get_mut(&leased.counter).filter(|counter| counter.leased == leased);
        let lease = counter.and_then(|counter| counter.lease.as_mut());
        let Some(lease) = lease.filter(|lease| !lease.is_over(now) && amount <= lease.used) else {
            return Step::Trip(Trip::default());
        };
        lease.used -= amount;
        Step::Grant(lease.grant(now))
    }

    /// Adds the lease that a trip has taken, which began at `begin`.
    pub(super) fn taken(&mut self, counter: SharedFingerprint, id: u64, given: Given, begin: Duration) {
        let counter = self.counters.get_mut(&counter).filter(|counter| counter.taking == Some(id));
        let Some(counter) = counter else { return };
        counter.taking = None;
        // What the store could not give is not asked for again.
        counter.size = given.amount;
        counter.lease = (given.amount > 0).then_some(Lease { id, given, begin, used: 0 });
    }

    /// Notes that a trip has failed. The store may have given a lease, which counts as used until it leaves the window.
    pub(super) fn failed(&mut self, counter: SharedFingerprint, id: u64) {
        if let Some(counter) = self.counters.get_mut(&counter).filter(|counter| counter.taking == Some(id)) {
            counter.taking = None;
        }
    }

    /// Ends the leases that are over, or that nothing has been requested of since the last sweep, and removes counters without any.
    pub(super) fn sweep(&mut self, now: Duration) -> Vec<(Leased, Return)> {
        let mut returns = Vec::new();
        self.counters.retain(|_, counter| {
            let ends = |lease: &mut Lease| counter.is_idle || lease.is_over(now);
            if let Some(lease) = counter.lease.take_if(ends) {
                returns.push((counter.leased, lease.end()));
            }
            let is_used = counter.lease.is_some() || counter.taking.is_some() || !counter.is_idle;
            counter.is_idle = true;
            is_used
        });
        returns
    }

    /// Ends all leases.
    pub(super) fn close(&mut self) -> Vec<(Leased, Return)> {
        let counters = self.counters.drain().map(|(_, counter)| counter);
        counters.filter_map(|counter| Some((counter.leased, counter.lease?.end()))).collect()
    }

    /// Returns the amounts that can be granted from memory, by quota.
    pub(super) fn held(&self) -> BTreeMap<Arc<str>, i64> {
        let mut held = BTreeMap::new();
        for counter in self.counters.values() {
            let left = counter.lease.as_ref().map_or(0, |lease| lease.given.amount - lease.used);
            *held.entry(counter.quota.clone()).or_default() += left;
        }
        held
    }
}

#[cfg(test)]
mod tests;
