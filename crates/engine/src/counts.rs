//! What became of requests since the start, recorded without locks.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use mixer_adapter_host::metrics::Latency;

/// Counts of an engine.
#[derive(Debug, Default)]
pub struct Counts {
    /// Checks, by [`Checked`].
    pub checks: [AtomicU64; 3],
    /// How long checks took.
    pub check_latency: Latency,
    /// Reports, by [`REPORTED`].
    pub reports: [AtomicU64; 2],
    /// Requests in reports.
    pub reported_requests: AtomicU64,
    /// Quotas, by [`GRANTED`].
    pub quotas: [AtomicU64; 3],
    /// Conditions that could not be evaluated.
    pub condition_errors: AtomicU64,
}

/// What became of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// It was allowed.
    Allowed,
    /// It was denied.
    Denied,
    /// There was no answer but a gRPC error.
    Failed,
}

impl Checked {
    /// The names of the outcomes, in their order.
    pub const NAMES: [&str; 3] = ["allowed", "denied", "failed"];
}

/// What [`Counts::report`] tells apart.
pub const REPORTED: [&str; 2] = ["delivered", "failed"];

/// What [`Counts::quota`] tells apart.
pub const GRANTED: [&str; 3] = ["granted", "partial", "refused"];

impl Counts {
    /// Counts a check that took that long.
    pub fn check(&self, outcome: Checked, took: Duration) {
        self.checks[outcome as usize].fetch_add(1, Relaxed);
        self.check_latency.record(took);
    }

    /// Counts a report of so many requests, and whether all of it was delivered.
    pub fn report(&self, requests: usize, delivered: bool) {
        self.reports[usize::from(!delivered)].fetch_add(1, Relaxed);
        self.reported_requests.fetch_add(requests as u64, Relaxed);
    }

    /// Counts a quota: so much granted of what was asked for.
    pub fn quota(&self, granted: i64, asked: i64) {
        let outcome = match granted {
            all if all >= asked => 0,
            some if some > 0 => 1,
            _ => 2,
        };
        self.quotas[outcome].fetch_add(1, Relaxed);
    }

    /// Counts conditions that could not be evaluated.
    pub fn condition_errors(&self, errors: u64) {
        if errors > 0 {
            self.condition_errors.fetch_add(errors, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_granted_in_part_or_not_at_all() {
        let counts = Counts::default();
        for (granted, asked) in [(5, 5), (0, 0), (7, 5), (3, 5), (0, 5), (-1, 5)] {
            counts.quota(granted, asked);
        }
        assert_eq!(counts.quotas.each_ref().map(|count| count.load(Relaxed)), [3, 1, 2]);
    }
}
