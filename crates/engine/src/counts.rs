//! Lock-free counters of request outcomes.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::{RequestLimit, dispatch::RequestCounts};
use mixer_adapter_host::metrics::Latency;

/// The counters of an engine.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Checks, by [`CheckOutcome`].
    pub checks: [AtomicU64; 3],
    /// The latency of checks.
    pub check_latency: Latency,
    /// Reports, by [`REPORT_OUTCOMES`].
    pub reports: [AtomicU64; 2],
    /// Requests contained in reports.
    pub reported_requests: AtomicU64,
    /// Quotas, by [`QUOTA_OUTCOMES`].
    pub quotas: [AtomicU64; 3],
    /// Conditions that could not be evaluated.
    pub condition_errors: AtomicU64,
    /// Quota requests for which no rule has a quota.
    pub unknown_quotas: AtomicU64,
    /// Details of statuses that were omitted because they exceeded the limit.
    pub omitted_details: AtomicU64,
    /// Calls that exceeded a limit, by [`RequestLimit`].
    pub over_limit: [AtomicU64; RequestLimit::NAMES.len()],
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckOutcome {
    /// The request was allowed.
    Allowed,
    /// The request was denied.
    Denied,
    /// The check failed with a gRPC error.
    Failed,
}

impl CheckOutcome {
    /// The names of the outcomes by discriminant.
    pub const NAMES: [&str; 3] = ["allowed", "denied", "failed"];
}

/// The outcomes counted by [`Counts::report`].
pub const REPORT_OUTCOMES: [&str; 2] = ["delivered", "failed"];

/// The outcomes counted by [`Counts::quota`].
pub const QUOTA_OUTCOMES: [&str; 3] = ["granted", "partial", "refused"];

/// Returns the index in [`QUOTA_OUTCOMES`] of a quota request by the amounts granted and requested.
pub fn quota_outcome(granted: i64, requested: i64) -> usize {
    match granted {
        all if all >= requested => 0,
        some if some > 0 => 1,
        _ => 2,
    }
}

impl Counts {
    /// Counts a check.
    pub fn check(&self, outcome: CheckOutcome, took: Duration) {
        self.checks[outcome as usize].fetch_add(1, Relaxed);
        self.check_latency.record(took);
    }

    /// Counts a report of `requests`; `delivered` if all of them were.
    pub fn report(&self, requests: usize, delivered: bool) {
        self.reports[usize::from(!delivered)].fetch_add(1, Relaxed);
        self.reported_requests.fetch_add(requests as u64, Relaxed);
    }

    /// Counts a quota request by the amounts granted and requested.
    pub fn quota(&self, granted: i64, requested: i64) {
        self.quotas[quota_outcome(granted, requested)].fetch_add(1, Relaxed);
    }

    /// Counts a call that exceeded a limit.
    pub fn over_limit(&self, limit: RequestLimit) {
        self.over_limit[limit as usize].fetch_add(1, Relaxed);
    }

    /// Adds the events of a request.
    pub fn request(&self, counts: RequestCounts) {
        let RequestCounts { condition_errors, omitted_details, unknown_quotas } = counts;
        let sums = [&self.condition_errors, &self.omitted_details, &self.unknown_quotas];
        for (sum, count) in sums.into_iter().zip([condition_errors, omitted_details, unknown_quotas]) {
            if count > 0 {
                sum.fetch_add(count, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_granted_partial_or_refused() {
        let counts = Counts::default();
        for (granted, requested) in [(5, 5), (0, 0), (7, 5), (3, 5), (0, 5), (-1, 5)] {
            counts.quota(granted, requested);
        }
        assert_eq!(counts.quotas.each_ref().map(|count| count.load(Relaxed)), [3, 1, 2]);
    }
}
