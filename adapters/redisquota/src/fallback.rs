//! Decisions without Redis.

use std::time::{Duration, Instant};

use mixer_adapter_core::{
    Grant, LimitState, QuotaRequest,
    metrics::{Events, Metrics},
};
use mixer_adapter_quota::{Capacity, Counters, Dedup, Limit, SharedFingerprint};

use super::config::params::OnError;

/// Decides about requests that Redis did not.
#[derive(Debug)]
pub(super) struct Fallback {
    on_error: OnError,
    denied: Events,
    allowed: Events,
    /// The grants of this server, also those by Redis; only for `LOCAL`.
    counters: Counters,
    dedup: Dedup,
    created: Instant,
}

/// A request that is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undecided<'r> {
    pub(super) instance: &'r str,
    pub(super) request: &'r QuotaRequest,
    pub(super) counter: SharedFingerprint,
    pub(super) limit: Limit,
}

impl Fallback {
    pub(super) fn new(on_error: OnError, deduplication: Duration, metrics: &Metrics) -> Self {
        Self {
            on_error,
            denied: metrics.events("denied_without_redis"),
            allowed: metrics.events("granted_without_redis"),
            counters: Counters::new(Capacity::default(), metrics.events("calls_without_room")),
            dedup: Dedup::new(deduplication, metrics.events("answers_forgotten")),
            created: Instant::now(),
        }
    }

    /// Notes what Redis granted to this server or took back, which is part of its share.
    pub(super) fn note(&self, undecided: Undecided<'_>, granted: i64) {
        let Undecided { request, counter, limit, .. } = undecided;
        if self.on_error != OnError::Local || granted == 0 || limit.valid.is_none() {
            return;
        }
        let amount = if request.amount < 0 { -granted } else { granted };
        let noted = QuotaRequest::new(amount).with_past_limit();
        // Without room for the counter nothing is granted without Redis, either.
        let _ = self.counters.apply(counter.0, limit, &noted, self.created.elapsed());
    }

    /// Decides about a request. `servers` is the number of servers that live, if it is known.
    pub(super) fn decide(&self, undecided: Undecided<'_>, servers: Option<u64>) -> Grant {
        let Undecided { request, limit, .. } = undecided;
        let grant = match self.on_error {
            OnError::Deny => Grant::nothing(),
            OnError::Allow if request.amount > 0 => {
                Grant::amount(request.amount).valid_for(limit.valid.unwrap_or_default())
            }
            // Nothing is known to be in use.
            OnError::Allow => Grant::nothing(),
            OnError::Local => servers.map_or(Grant::nothing(), |servers| self.share(undecided, servers)),
        };
        if request.amount > 0 {
            if grant.granted() > 0 { &self.allowed } else { &self.denied }.add(1);
        }
        if !request.report_limit {
            return grant;
        }
        grant.with_limit(LimitState {
            max_amount: limit.max,
            remaining: 0,
            window: limit.valid,
            reset_after: None,
        })
    }

    /// Grants from the part of the limit that this server has. Allocations are not granted: nobody could release them.
    fn share(&self, undecided: Undecided<'_>, servers: u64) -> Grant {
        let Undecided { instance, request, counter, limit } = undecided;
        if limit.valid.is_none() {
            return Grant::nothing();
        }
        let share = Limit { max: limit.max / i64::try_from(servers).unwrap_or(i64::MAX), ..limit };
        let now = self.created.elapsed();
        let granted =
            self.dedup.once(instance, request, now, || self.counters.apply(counter.0, share, request, now));
        granted.unwrap_or(Grant::nothing())
    }
}
