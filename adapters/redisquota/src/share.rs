//! The share of a limit that a server grants while the store is away, and its reports to the store. A state machine without
//! socket or clock (docs/decisions/0022-shares-without-redis.md).

use std::{collections::HashMap, ops::RangeInclusive, time::Duration};

use mixer_adapter_core::QuotaRequest;
use mixer_adapter_quota::{Counter, SharedFingerprint, Span};

use super::lease::Leased;

/// The maximum number of counters. Nothing is granted from the shares of further ones.
const MOST_COUNTERS: usize = 64 * 1024;
/// The number of parts of a window, which bounds the memory of a counter. Amounts of a part become free together.
const PARTS: u32 = 16;

/// An amount that the store has to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) id: u64,
    pub(super) amount: i64,
    made: Duration,
}

/// Inputs of a server's share, besides its own counters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divided {
    /// The number of servers that divide the limit.
    pub(super) servers: u64,
    /// The amount that this server can grant from a lease.
    pub(super) leased: i64,
}

/// The shares of a server.
#[derive(Debug)]
pub(super) struct Shares {
    counters: HashMap<SharedFingerprint, Known>,
    last_id: u64,
}

/// The state of a counter, as a server knows it.
#[derive(Debug)]
struct Known {
    leased: Leased,
    /// All amounts granted to this server: by the store, from leases, and from its share.
    granted: Counter,
    /// Amounts granted from the share that are in no report yet.
    unsent: Counter,
    /// Amounts that trips under way can still be granted.
    pending: i64,
    /// The report that the store has not answered.
    report: Option<Report>,
    trip: Option<LastTrip>,
}

/// The last trip before the store was away.
#[derive(Clone, Copy, Debug)]
struct LastTrip {
    at: Duration,
    /// The amount that all servers used, leases included.
    used: i64,
    /// The amount granted to this server since then.
    granted: i64,
}

impl Known {
    fn new(leased: Leased) -> Self {
        // One part more than the window, so that no amount is free before its window is over.
        let tick = leased.window.length() / PARTS + Duration::from_nanos(1);
        let counter = || Counter::new(Some(Span { tick, ticks: u64::from(PARTS) + 1 }));
        Self { leased, granted: counter(), unsent: counter(), pending: 0, report: None, trip: None }
    }

    fn grant(&mut self, amount: i64, now: Duration) {
        add(&mut self.granted, amount, now);
        if let Some(trip) = &mut self.trip {
            trip.granted = trip.granted.saturating_add(amount);
        }
    }

    fn release(&mut self, amount: u64, now: Duration) -> i64 {
        let released = self.granted.release(amount, now);
        if let Some(trip) = &mut self.trip {
            trip.granted = (trip.granted - released).max(0);
        }
        released
    }

    /// Returns the remaining share of `max`; negative if more was granted.
    fn left(&mut self, max: i64, divided: Divided, now: Duration) -> i64 {
        let servers = i64::try_from(divided.servers).unwrap_or(i64::MAX).max(1);
        let of_all = self.last_trip(now).map_or(0, |trip| {
            let part = trip.used / servers + i64::from(trip.used % servers > 0);
            part.saturating_add(trip.granted)
        });
        let used = of_all.max(self.granted.in_use(now));
        max / servers - used.saturating_add(divided.leased).saturating_add(self.pending)
    }

    /// Returns the last trip, if amounts that it found can be in use: leases that others held are granted for up to half a window,
    /// and count for a window then.
    fn last_trip(&self, now: Duration) -> Option<LastTrip> {
        let window = self.leased.window.length();
        self.trip.filter(|trip| now < trip.at + window + window / 2)
    }

    /// Returns the report that the store has not answered, unless its amounts have left the window.
    fn report(&self, now: Duration) -> Option<Report> {
        self.report.filter(|report| now < report.made + self.leased.window.length())
    }

    fn is_reported(&mut self, now: Duration) -> bool {
        self.report(now).is_none() && self.unsent.in_use(now) == 0
    }
}

fn add(counter: &mut Counter, amount: i64, now: Duration) {
    let room = i64::MAX - counter.in_use(now);
    counter.add(amount.min(room), now);
}

impl Shares {
    /// Creates a server without grants. Ids of reports count from `first_id`; no other handler may use them.
    pub(super) fn new(first_id: u64) -> Self {
        Self { counters: HashMap::new(), last_id: first_id }
    }

    /// Notes an amount that the store or a lease granted to this server; a negative amount was taken back.
    pub(super) fn note_granted(&mut self, leased: Leased, amount: i64, now: Duration) {
        if amount == 0 {
            return;
        }
        let Some(known) = self.known(leased) else { return };
        if amount > 0 {
            known.grant(amount, now);
        } else {
            known.release(amount.unsigned_abs(), now);
        }
    }

    /// Notes the amount that all servers used, leases included, after a trip of this server. Ignored while grants are
    /// unreported, because the store does not know all grants of this server then.
    pub(super) fn note_used(&mut self, leased: Leased, used: i64, now: Duration) {
        if let Some(known) = self.known(leased)
            && known.is_reported(now)
        {
            known.trip = Some(LastTrip { at: now, used: used.max(0), granted: 0 });
        }
    }

    /// Reserves one of `amounts` for a trip, the largest that the share has left, or 0; `None` if there are too many counters. The
    /// caller ends the trip with [`unreserve`](Self::unreserve), after the amount that it was granted is noted.
    pub(super) fn reserve(
        &mut self,
        leased: Leased,
        amounts: RangeInclusive<i64>,
        divided: Divided,
        now: Duration,
    ) -> Option<i64> {
        let known = self.known(leased)?;
        let most = known.left(leased.max, divided, now).min(*amounts.end());
        let reserved = if most < *amounts.start() { 0 } else { most };
        known.pending += reserved;
        Some(reserved)
    }

    /// Ends the reservation of a trip.
    pub(super) fn unreserve(&mut self, counter: SharedFingerprint, reserved: i64) {
        if let Some(known) = self.counters.get_mut(&counter) {
            known.pending -= reserved;
        }
    }

    /// Grants an amount from the share, or releases a negative one; `None` if there are too many counters.
    pub(super) fn grant(
        &mut self,
        leased: Leased,
        request: &QuotaRequest,
        divided: Divided,
        now: Duration,
    ) -> Option<i64> {
        let known = self.known(leased)?;
        if request.amount < 0 {
            let released = known.release(request.amount.unsigned_abs(), now);
            known.unsent.release(released.unsigned_abs(), now);
            return Some(released);
        }
        let left = known.left(leased.max, divided, now);
        let granted = match request.amount {
            amount if amount <= left || request.past_limit => amount,
            _ if request.best_effort => left.max(0),
            _ => 0,
        };
        if granted > 0 {
            known.grant(granted, now);
            add(&mut known.unsent, granted, now);
        }
        Some(granted)
    }

    /// Returns the next report of a counter: the same one until [`reported`](Self::reported) ends it.
    pub(super) fn next_report(&mut self, counter: SharedFingerprint, now: Duration) -> Option<Report> {
        let known = self.counters.get_mut(&counter)?;
        known.report = known.report(now);
        let amount = known.unsent.in_use(now);
        if known.report.is_none() && amount > 0 {
            known.unsent.release(amount.unsigned_abs(), now);
            self.last_id += 1;
            known.report = Some(Report { id: self.last_id, amount, made: now });
        }
        known.report
    }

    /// Notes that the store has counted a report.
    pub(super) fn reported(&mut self, counter: SharedFingerprint, report: Report) {
        if let Some(known) = self.counters.get_mut(&counter) {
            known.report = known.report.filter(|last| *last != report);
        }
    }

    /// Removes unused counters, and returns the counters with amounts to report.
    pub(super) fn sweep(&mut self, now: Duration) -> Vec<Leased> {
        let mut unreported = Vec::new();
        self.counters.retain(|_, known| {
            let is_reported = known.is_reported(now);
            if !is_reported {
                unreported.push(known.leased);
            }
            !is_reported
                || known.pending > 0
                || known.granted.in_use(now) > 0
                || known.last_trip(now).is_some()
        });
        unreported
    }

    fn known(&mut self, leased: Leased) -> Option<&mut Known> {
        if self.counters.len() >= MOST_COUNTERS && !self.counters.contains_key(&leased.counter) {
            return None;
        }
        Some(self.counters.entry(leased.counter).or_insert_with(|| Known::new(leased)))
    }
}

#[cfg(test)]
mod tests;
