//! Counters of the services, for metrics.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use crate::{
    outcome::RateLimitOutcome,
    tenants::{TenantCounts, Tenants},
};

/// The counts.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Requests for rate limits, by [`RateLimitOutcome`].
    pub rate_limits: [AtomicU64; RateLimitOutcome::NAMES.len()],
    /// Hits of rate limits that could not be given back.
    pub hits_lost: AtomicU64,
    /// Entries of access logs that were received.
    pub log_entries: AtomicU64,
    /// Streams of access logs that ended with a message that could not be read.
    pub log_unreadable: AtomicU64,
    /// Open streams of access logs.
    pub log_streams: AtomicU64,
    lost: Mutex<BTreeMap<Arc<str>, u64>>,
    tenants: Tenants,
}

impl Counters {
    pub(crate) fn rate_limit(&self, outcome: RateLimitOutcome, tenant: &str) {
        self.rate_limits[outcome as usize].fetch_add(1, Relaxed);
        self.tenants.of(tenant).rate_limits[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Counts instances that did not reach a handler. The name is empty for entries lost before their handlers were known.
    pub(crate) fn lose(&self, handler: &Arc<str>, count: usize) {
        let mut lost = self.lost.lock();
        *lost.entry(handler.clone()).or_default() += count as u64;
    }

    /// Returns the counts of a namespace.
    pub(crate) fn tenant(&self, namespace: &str) -> Arc<TenantCounts> {
        self.tenants.of(namespace)
    }

    /// Returns the counts by namespace. Beyond 100 namespaces they are summed up as `(other)`.
    pub fn tenants(&self) -> Vec<Arc<TenantCounts>> {
        self.tenants.all()
    }

    /// Returns the number of lost instances by handler.
    pub fn lost(&self) -> BTreeMap<Arc<str>, u64> {
        self.lost.lock().clone()
    }
}
