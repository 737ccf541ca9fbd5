//! Decisions without Redis.

use std::{ops::RangeInclusive, time::Duration};

use mixer_adapter_core::{
    Grant, LimitState, QuotaRequest,
    metrics::{Counter, Events, Metrics, Series},
};
use mixer_adapter_quota::{Dedup, Limit, SharedFingerprint};
use parking_lot::Mutex;

use super::{
    lease::Leased,
    params::OnError,
    share::{Divided, Report, Shares},
};

/// Decides about requests without Redis.
#[derive(Debug)]
pub(super) struct Fallback {
    on_error: OnError,
    /// By quota and outcome.
    decided: Series<Counter, 2>,
    /// Only for `LOCAL`.
    shares: Mutex<Shares>,
    without_room: Events,
}

/// An amount of the share of this server that a trip can be granted.
pub(super) struct Reserved<'f> {
    shares: &'f Mutex<Shares>,
    counter: SharedFingerprint,
    pub(super) amount: i64,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.shares.lock().unreserve(self.counter, self.amount);
    }
}

/// A request that is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undecided<'r> {
    pub(super) instance: &'r str,
    pub(super) request: &'r QuotaRequest,
    pub(super) leased: Leased,
    pub(super) limit: Limit,
    /// The time since the handler was opened.
    pub(super) now: Duration,
}

impl Undecided<'_> {
    /// Adds the state of the limit to the answer if the request wants it.
    pub(super) fn with_limit(self, grant: Grant, remaining: i64, reset_after: Option<Duration>) -> Grant {
        if !self.request.report_limit {
            return grant;
        }
        let Limit { max: max_amount, valid: window } = self.limit;
        grant.with_limit(LimitState { max_amount, remaining, window, reset_after })
    }
}

impl Fallback {
    /// Creates the decisions of a handler. Ids of reports count from `first_id`; no other handler may use them.
    pub(super) fn new(on_error: OnError, metrics: &Metrics, first_id: u64) -> Self {
        Self {
            on_error,
            decided: metrics.counter(
                "decisions_without_redis",
                "Requests that were decided without Redis",
                ["quota", "outcome"],
            ),
            shares: Mutex::new(Shares::new(first_id)),
            without_room: metrics.events("calls_without_room"),
        }
    }

    /// Returns whether this server grants shares of a limit. Allocations are not granted: nobody could release them.
    pub(super) fn has_shares(&self, limit: Limit) -> bool {
        self.on_error == OnError::Local && limit.valid.is_some()
    }

    /// Notes the amount that Redis granted to this server, or took back. It counts against the share.
    pub(super) fn note_granted(&self, undecided: Undecided<'_>, granted: i64) {
        let Undecided { request, leased, limit, now, .. } = undecided;
        if self.has_shares(limit) {
            let amount = if request.amount < 0 { -granted } else { granted };
            self.shares.lock().note_granted(leased, amount, now);
        }
    }

    /// Notes the amount that all servers use. An equal part of it counts against the share of this server.
    pub(super) fn note_used(&self, undecided: Undecided<'_>, used: i64) {
        if self.has_shares(undecided.limit) {
            self.shares.lock().note_used(undecided.leased, used, undecided.now);
        }
    }

    /// Reserves one of `amounts` of the share of this server for a trip, the largest that is left, or 0. Returns `None` if the counter
    /// has no share, so that only Redis bounds the trip.
    pub(super) fn reserve(
        &self,
        undecided: Undecided<'_>,
        amounts: RangeInclusive<i64>,
        divided: Option<Divided>,
    ) -> Option<Reserved<'_>> {
        let Undecided { leased, limit, now, .. } = undecided;
        if !self.has_shares(limit) {
            return None;
        }
        let amount = match divided {
            Some(divided) => self.shares.lock().reserve(leased, amounts, divided, now)?,
            None => 0,
        };
        Some(Reserved { shares: &self.shares, counter: leased.counter, amount })
    }

    /// Decides about a request. Without `divided` the share is unknown; `repeated` has the last answers.
    pub(super) fn decide(
        &self,
        undecided: Undecided<'_>,
        divided: Option<Divided>,
        repeated: &Dedup,
    ) -> Grant {
        let Undecided { request, limit, .. } = undecided;
        let grant = match self.on_error {
            OnError::Deny => Grant::nothing(),
            OnError::Allow if request.amount > 0 => {
                Grant::amount(request.amount).valid_for(limit.valid.unwrap_or_default())
            }
            // Nothing is known to be in use.
            OnError::Allow => Grant::nothing(),
            OnError::Local => {
                divided.map_or(Grant::nothing(), |divided| self.share(undecided, divided, repeated))
            }
        };
        if request.amount > 0 {
            let outcome = if grant.granted() > 0 { "granted" } else { "denied" };
            self.decided.with([undecided.instance, outcome]).inc();
        }
        undecided.with_limit(grant, 0, None)
    }

    /// Grants from the share of this server.
    fn share(&self, undecided: Undecided<'_>, divided: Divided, repeated: &Dedup) -> Grant {
        let Undecided { instance, request, leased, limit, now } = undecided;
        let Some(valid) = limit.valid else { return Grant::nothing() };
        let granted = repeated.once(instance, request, now, || {
            let granted = self.shares.lock().grant(leased, request, divided, now).ok_or(())?;
            let valid = if request.amount > 0 && granted > 0 { valid } else { Duration::ZERO };
            Ok::<_, ()>(Grant::amount(granted).valid_for(valid))
        });
        granted.unwrap_or_else(|()| {
            self.without_room.add(1);
            Grant::nothing()
        })
    }

    /// Returns the next report of a counter to Redis, the same one until it is [`reported`](Self::reported).
    pub(super) fn next_report(&self, counter: SharedFingerprint, now: Duration) -> Option<Report> {
        self.shares.lock().next_report(counter, now)
    }

    /// Notes that Redis has counted a report.
    pub(super) fn reported(&self, counter: SharedFingerprint, report: Report) {
        self.shares.lock().reported(counter, report);
    }

    /// Returns the counters with amounts to report, and removes unused counters.
    pub(super) fn sweep(&self, now: Duration) -> Vec<Leased> {
        self.shares.lock().sweep(now)
    }
}
