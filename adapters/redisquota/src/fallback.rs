//! Decisions without Redis.

use std::time::Duration;

use mixer_adapter_core::{
    Grant, LimitState, QuotaRequest,
    metrics::{Counter, Metrics, Series},
};
use mixer_adapter_quota::{Capacity, Counters, Dedup, Limit, SharedFingerprint};

use super::config::params::OnError;

/// Decides about requests that Redis did not.
#[derive(Debug)]
pub(super) struct Fallback {
    on_error: OnError,
    /// By quota and outcome.
    decided: Series<Counter, 2>,
    /// The grants of this server, also those by Redis; only for `LOCAL`.
    counters: Counters,
}

/// A request that is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undecided<'r> {
    pub(super) instance: &'r str,
    pub(super) request: &'r QuotaRequest,
    pub(super) counter: SharedFingerprint,
    pub(super) limit: Limit,
    /// The time since the handler was opened.
    pub(super) now: Duration,
}

impl Fallback {
    pub(super) fn new(on_error: OnError, metrics: &Metrics) -> Self {
        Self {
            on_error,
            decided: metrics.counter(
                "decisions_without_redis",
                "Requests that were decided without Redis",
                ["quota", "outcome"],
            ),
            counters: Counters::new(Capacity::default(), metrics.events("calls_without_room")),
        }
    }

    /// Notes what Redis granted to this server or took back, which is part of its share.
    pub(super) fn note(&self, undecided: Undecided<'_>, granted: i64) {
        let amount = if undecided.request.amount < 0 { -granted } else { granted };
        if amount != 0 {
            self.count(undecided, amount);
        }
    }

    /// Notes what all servers use: an equal part of it is not left of the share of this one.
    pub(super) fn note_all(&self, undecided: Undecided<'_>, in_use: i64, servers: Option<u64>) {
        let Undecided { counter, limit, now, .. } = undecided;
        if self.on_error != OnError::Local || limit.valid.is_none() {
            return;
        }
        let servers = servers.and_then(|servers| i64::try_from(servers).ok()).unwrap_or(1);
        let all = Limit { max: i64::MAX, ..limit };
        let counted = i64::MAX - self.counters.state(counter.0, all, 0, 0, now).remaining;
        let part = in_use / servers + i64::from(in_use % servers > 0);
        if part > counted {
            self.count(undecided, part - counted);
        }
    }

    fn count(&self, undecided: Undecided<'_>, amount: i64) {
        let Undecided { counter, limit, now, .. } = undecided;
        if self.on_error != OnError::Local || limit.valid.is_none() {
            return;
        }
        let counted = QuotaRequest::new(amount).with_past_limit();
        // Without room for the counter nothing is granted without Redis, either.
        let _ = self.counters.apply(counter.0, limit, &counted, now);
    }

    /// Decides about a request. `servers` is the number of servers that live, if it is known; `repeated` has the last answers.
    pub(super) fn decide(&self, undecided: Undecided<'_>, servers: Option<u64>, repeated: &Dedup) -> Grant {
        let Undecided { request, limit, .. } = undecided;
        let grant = match self.on_error {
            OnError::Deny => Grant::nothing(),
            OnError::Allow if request.amount > 0 => {
                Grant::amount(request.amount).valid_for(limit.valid.unwrap_or_default())
            }
            // Nothing is known to be in use.
            OnError::Allow => Grant::nothing(),
            OnError::Local => {
                servers.map_or(Grant::nothing(), |servers| self.share(undecided, servers, repeated))
            }
        };
        if request.amount > 0 {
            let outcome = if grant.granted() > 0 { "granted" } else { "denied" };
            self.decided.with([undecided.instance, outcome]).inc();
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
    fn share(&self, undecided: Undecided<'_>, servers: u64, repeated: &Dedup) -> Grant {
        let Undecided { instance, request, counter, limit, now } = undecided;
        if limit.valid.is_none() {
            return Grant::nothing();
        }
        let share = Limit { max: limit.max / i64::try_from(servers).unwrap_or(i64::MAX), ..limit };
        let granted =
            repeated.once(instance, request, now, || self.counters.apply(counter.0, share, request, now));
        granted.unwrap_or(Grant::nothing())
    }
}
