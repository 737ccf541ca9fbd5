//! The metrics of a handler, and its state for operators.

use mixer_adapter_core::{
    Context,
    metrics::{Counter, Gauge, Histogram, Metrics, Series, exponential_buckets},
};
use mixer_adapter_redis::ConnectionError;
use parking_lot::Mutex;

use super::lease::Held;

/// Metrics by quota.
#[derive(Debug)]
pub(super) struct Counts {
    /// Requests that were granted without a trip.
    pub(super) from_leases: Series<Counter, 1>,
    /// Requests that were refused because of leases of other servers.
    pub(super) early_refusals: Series<Counter, 1>,
    pub(super) trip_seconds: Series<Histogram, 1>,
}

impl Counts {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let buckets = exponential_buckets(0.000_1, 2.0, 14);
        Self {
            from_leases: metrics.counter(
                "grants_from_leases",
                "Requests that were granted without a trip to Redis",
                ["quota"],
            ),
            early_refusals: metrics.counter(
                "early_refusals",
                "Requests that were refused because of leases of other servers",
                ["quota"],
            ),
            trip_seconds: metrics.histogram(
                "trip_seconds",
                "Time until Redis answers a request",
                ["quota"],
                buckets,
            ),
        }
    }
}

/// The state of leases by quota.
pub(super) struct LeaseGauges {
    left: Series<Gauge, 1>,
    used: Series<Gauge, 1>,
    remaining: Series<Gauge, 1>,
    age: Series<Gauge, 1>,
}

impl LeaseGauges {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let by_quota = |name, help| metrics.gauge(name, help, ["quota"]);
        Self {
            left: by_quota("leased", "Amounts that can be granted from memory"),
            used: by_quota("lease_used", "Amounts that were granted from the current leases"),
            remaining: by_quota(
                "lease_remaining",
                "The least amount that Redis had left of a limit when it gave one of the current leases",
            ),
            age: by_quota("lease_remaining_age_seconds", "The time since then"),
        }
    }

    /// Shows the leases of a quota. Without leases, the last remaining amount in Redis stays.
    pub(super) fn show(&self, quota: &str, held: Held) {
        self.left.with([quota]).set(held.left);
        self.used.with([quota]).set(held.used);
        if let Some((remaining, age)) = held.store {
            self.remaining.with([quota]).set(remaining);
            self.age.with([quota]).set(i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
        }
    }
}

/// Returns a function that shows whether there is a connection: by a warning, metrics and the log.
pub(super) fn on_change(context: Context) -> impl Fn(Option<&ConnectionError>) + Send + Sync {
    let metrics = context.metrics();
    let connected = metrics.gauge("connected", "Whether there is a connection to Redis", []).with([]);
    let lost = metrics.events("connections_lost");
    let warning = Mutex::new(None);
    move |error| {
        connected.set(i64::from(error.is_none()));
        let Some(error) = error else {
            tracing::info!("connected to Redis");
            *warning.lock() = None;
            return;
        };
        let text = format_args!("Redis is away, so that quotas are decided without it: {error}");
        *warning.lock() = Some(context.warn(text));
        lost.add(1);
        tracing::warn!(%error, "Redis is away; quotas are decided without it until there is a connection");
    }
}
