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
/// The maximum number of leases of a counter that are being returned. Others count as used.
const MOST_RETURNS: usize = 8;
/// The number of sweeps after which a lease that could not be returned counts as used in the store.
const MOST_SWEEPS: u32 = 70;

/// A counter with its window and its limit, for which leases are taken.
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

/// The leases that a trip to the store returns and takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trip {
    /// The leases that end.
    pub(super) returned: Vec<Return>,
    /// The requested amount of the next lease, and its id. The store may give a smaller one.
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

/// The leases of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// The amount that can be granted from memory.
    pub(super) left: i64,
    /// The amount that was granted from the same leases.
    pub(super) used: i64,
    /// The least amount that the store had left of a limit, and how long ago that was.
    pub(super) store: Option<(i64, Duration)>,
}

/// How a request is served: a grant from memory, or the trip that is necessary.
pub(super) type Served = Result<LeasedGrant, Trip>;

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
    /// Leases that have ended, until the store has answered. A return can be sent twice.
    returns: Vec<Return>,
    /// The number of sweeps since `returns` was empty.
    sweeps: u32,
}

#[derive(Debug)]
struct Lease {
    id: u64,
    given: Given,
    begin: Duration,
    used: i64,
}

impl Counter {
    fn end(&mut self, ended: Return) {
        if self.returns.len() < MOST_RETURNS {
            self.returns.push(ended);
        }
    }
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
    /// Creates a server without leases. Ids count from `first_id`; no other handler may use them.
    pub(super) fn new(first_id: u64) -> Self {
        Self { counters: HashMap::new(), last_id: first_id }
    }

    /// Grants an amount from a lease, or returns the trip that is necessary. The caller ends a trip that wants a lease with
    /// [`taken`](Self::taken) or [`failed`](Self::failed).
    pub(super) fn request(&mut self, leased: Leased, quota: &str, amount: i64, now: Duration) -> Served {
        let without_lease = Err(Trip::default());
        if !self.counters.contains_key(&leased.counter) && self.counters.len() >= MOST_COUNTERS {
            return without_lease;
        }
        let counter = self.counters.entry(leased.counter).or_insert_with(|| Counter {
            leased,
            quota: quota.into(),
            lease: None,
            size: 0,
            taking: None,
            is_idle: false,
            returns: Vec::new(),
            sweeps: 0,
        });
        counter.is_idle = false;
        // A caller can set another limit for the same counter.
        if counter.leased != leased || counter.taking.is_some() {
            return without_lease;
        }
        if let Some(lease) = counter.lease.as_mut().filter(|lease| !lease.is_over(now))
            && amount <= lease.given.amount - lease.used
        {
            lease.used += amount;
            return Ok(lease.grant(now));
        }
        let last = counter.lease.take();
        // If the lease was used up, the next one is twice its size. If it expired, the next one is twice the amount used.
        counter.size = match &last {
            Some(lease) if lease.is_over(now) => lease.used.saturating_mul(2),
            _ => counter.size.saturating_mul(2),
        };
        counter.size = counter.size.max(amount);
        self.last_id += 1;
        counter.taking = Some(self.last_id);
        if let Some(last) = last {
            counter.end(last.end());
        }
        Err(Trip { returned: counter.returns.clone(), wanted: counter.size, id: self.last_id })
    }

    /// Takes an amount back that was granted from a lease; otherwise the store has to.
    pub(super) fn release(&mut self, leased: Leased, amount: i64, now: Duration) -> Served {
        let counter = self.counters.get_mut(&leased.counter).filter(|counter| counter.leased == leased);
        let lease = counter.and_then(|counter| counter.lease.as_mut());
        let Some(lease) = lease.filter(|lease| !lease.is_over(now) && amount <= lease.used) else {
            return Err(Trip::default());
        };
        lease.used -= amount;
        Ok(lease.grant(now))
    }

    /// Adds the lease that a trip has taken, which began at `begin`.
    pub(super) fn taken(&mut self, counter: SharedFingerprint, trip: &Trip, given: Given, begin: Duration) {
        self.returned(counter, &trip.returned);
        let id = trip.id;
        let counter = self.counters.get_mut(&counter).filter(|counter| counter.taking == Some(id));
        let Some(counter) = counter else { return };
        counter.taking = None;
        // The next lease starts from the given amount, not from the requested one.
        counter.size = given.amount;
        counter.lease = (given.amount > 0).then_some(Lease { id, given, begin, used: 0 });
    }

    /// Notes that the store knows that leases have ended.
    pub(super) fn returned(&mut self, counter: SharedFingerprint, returned: &[Return]) {
        if let Some(counter) = self.counters.get_mut(&counter) {
            counter.returns.retain(|known| !returned.contains(known));
        }
    }

    /// Notes that a trip has failed. If it was sent, the store may have given a lease, which is returned.
    pub(super) fn failed(&mut self, counter: SharedFingerprint, id: u64, was_sent: bool) {
        if let Some(counter) = self.counters.get_mut(&counter).filter(|counter| counter.taking == Some(id)) {
            counter.taking = None;
            if was_sent {
                counter.end(Return { id, used: 0 });
            }
        }
    }

    /// Ends the leases that are over, or that nothing has been requested of since the last sweep, and removes counters without any.
    /// Returns the ends of leases that the store does not know yet.
    pub(super) fn sweep(&mut self, now: Duration) -> Vec<(Leased, Vec<Return>)> {
        let mut returns = Vec::new();
        self.counters.retain(|_, counter| {
            if let Some(lease) = counter.lease.take_if(|lease| counter.is_idle || lease.is_over(now)) {
                counter.end(lease.end());
            }
            counter.sweeps = if counter.returns.is_empty() { 0 } else { counter.sweeps + 1 };
            if counter.sweeps > MOST_SWEEPS {
                counter.returns.clear();
            }
            let is_used = counter.lease.is_some()
                || counter.taking.is_some()
                || !counter.returns.is_empty()
                || !counter.is_idle;
            if !counter.returns.is_empty() && counter.taking.is_none() {
                returns.push((counter.leased, counter.returns.clone()));
            }
            counter.is_idle = true;
            is_used
        });
        returns
    }

    /// Ends all leases.
    pub(super) fn close(&mut self) -> Vec<(Leased, Vec<Return>)> {
        let counters = self.counters.drain().map(|(_, mut counter)| {
            if let Some(lease) = counter.lease.take() {
                counter.end(lease.end());
            }
            (counter.leased, counter.returns)
        });
        counters.filter(|(_, returns)| !returns.is_empty()).collect()
    }

    /// Returns the amount that can be granted from the lease of a counter.
    pub(super) fn left(&self, counter: SharedFingerprint, now: Duration) -> i64 {
        let lease = self.counters.get(&counter).and_then(|counter| counter.lease.as_ref());
        lease.filter(|lease| !lease.is_over(now)).map_or(0, |lease| lease.given.amount - lease.used)
    }

    /// Returns the state of the leases by quota.
    pub(super) fn held(&self, now: Duration) -> BTreeMap<Arc<str>, Held> {
        let mut held = BTreeMap::<Arc<str>, Held>::new();
        for counter in self.counters.values() {
            let of_quota = held.entry(counter.quota.clone()).or_default();
            let Some(Lease { given, begin, used, .. }) = &counter.lease else { continue };
            of_quota.left += given.amount - used;
            of_quota.used += used;
            if of_quota.store.is_none_or(|(remaining, _)| given.remaining < remaining) {
                of_quota.store = Some((given.remaining, now.saturating_sub(*begin)));
            }
        }
        held
    }
}

#[cfg(test)]
mod tests;
