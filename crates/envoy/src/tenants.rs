//! Tenants: the namespaces whose rules apply. Each has separate counts and a share of the queues.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::{Mutex, RwLock};

use mixer_adapter_engine::CheckOutcome;

use crate::outcome::RateLimitOutcome;

/// Maximum number of tenants with separate counts.
const MAX_TENANTS: usize = 100;

/// The name of the counts of further tenants. Namespaces of Kubernetes have no such name.
const OTHER: &str = "(other)";

/// The counts of one tenant.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct TenantCounts {
    /// The namespace; empty for requests to which only rules of the default namespace apply.
    pub namespace: Arc<str>,
    /// Checks, by [`CheckOutcome`].
    pub checks: [AtomicU64; CheckOutcome::NAMES.len()],
    /// Requests for rate limits, by [`RateLimitOutcome`].
    pub rate_limits: [AtomicU64; RateLimitOutcome::NAMES.len()],
    /// Entries of access logs whose attributes are known.
    pub log_entries: AtomicU64,
    /// Instances of access logs that did not reach a handler.
    pub log_lost: AtomicU64,
}

impl TenantCounts {
    fn new(namespace: &str) -> Arc<Self> {
        Arc::new(Self { namespace: namespace.into(), ..Self::default() })
    }

    pub(crate) fn lose(&self, instances: usize) {
        self.log_lost.fetch_add(instances as u64, Relaxed);
    }
}

/// The counts of all tenants.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    named: RwLock<HashMap<Arc<str>, Arc<TenantCounts>>>,
    other: OnceLock<Arc<TenantCounts>>,
}

impl Tenants {
    /// Returns the counts of a namespace, or the shared counts of further namespaces.
    pub(crate) fn of(&self, namespace: &str) -> Arc<TenantCounts> {
        let known = {
            let named = self.named.read();
            named.get(namespace).or_else(|| self.other.get()).cloned()
        };
        known.unwrap_or_else(|| self.add(namespace))
    }

    fn add(&self, namespace: &str) -> Arc<TenantCounts> {
        let mut named = self.named.write();
        if named.len() >= MAX_TENANTS && !named.contains_key(namespace) {
            return self.other.get_or_init(|| TenantCounts::new(OTHER)).clone();
        }
        named.entry(namespace.into()).or_insert_with(|| TenantCounts::new(namespace)).clone()
    }

    /// Returns the counts of all tenants by name.
    pub(crate) fn all(&self) -> Vec<Arc<TenantCounts>> {
        let named = self.named.read();
        let mut all: Vec<_> = named.values().chain(self.other.get()).cloned().collect();
        all.sort_by(|one, other| one.namespace.cmp(&other.namespace));
        all
    }
}

/// Space in bytes that tenants share. Each can take at most as much as remains for the others, so that a busy tenant never takes all
/// of it.
#[derive(Debug)]
pub(crate) struct SharedSpace {
    size: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_tenant: HashMap<Arc<str>, usize>,
}

/// A part of the space, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Space {
    shared: Arc<SharedSpace>,
    tenant: Arc<str>,
    size: usize,
}

impl SharedSpace {
    pub(crate) fn new(size: usize) -> Arc<Self> {
        Arc::new(Self { size, taken: Mutex::default() })
    }

    /// Takes space for a tenant; `None` if its share is exhausted. A larger size takes all space.
    pub(crate) fn take(self: &Arc<Self>, tenant: &Arc<str>, size: usize) -> Option<Space> {
        let size = size.clamp(1, self.size);
        let mut taken = self.taken.lock();
        let own = taken.by_tenant.get(tenant).copied().unwrap_or_default();
        if own + size > self.size - taken.all {
            return None;
        }
        taken.all += size;
        taken.by_tenant.insert(tenant.clone(), own + size);
        Some(Space { shared: self.clone(), tenant: tenant.clone(), size })
    }

    /// Returns whether nothing is taken.
    pub(crate) fn is_free(&self) -> bool {
        self.taken.lock().all == 0
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let mut taken = self.shared.taken.lock();
        taken.all = taken.all.saturating_sub(self.size);
        if let Some(own) = taken.by_tenant.get_mut(&self.tenant) {
            *own = own.saturating_sub(self.size);
            if *own == 0 {
                taken.by_tenant.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_leaves_as_much_space_as_it_takes() {
        let shared = SharedSpace::new(100);
        let [busy, quiet]: [Arc<str>; 2] = ["busy".into(), "quiet".into()];
        let mut taken = Vec::new();
        while let Some(space) = shared.take(&busy, 1) {
            taken.push(space);
        }
        assert_eq!(taken.len(), 50);
        let other: Vec<_> = std::iter::from_fn(|| shared.take(&quiet, 1)).collect();
        assert_eq!(other.len(), 25);
        assert!(shared.take(&busy, 1).is_none(), "a share is not exceeded because others use little");
        taken.clear();
        assert!(shared.take(&busy, 30).is_some());
        drop(other);
        assert!(shared.is_free());
        assert!(shared.taken.lock().by_tenant.is_empty());
        assert!(shared.take(&busy, 1000).is_some(), "all of it");
    }

    #[test]
    fn tenants_beyond_the_maximum_share_their_counts() {
        let tenants = Tenants::default();
        for number in 0..MAX_TENANTS + 50 {
            tenants.of(&format!("ns-{number}")).log_entries.fetch_add(1, Relaxed);
        }
        let all = tenants.all();
        assert_eq!(all.len(), MAX_TENANTS + 1);
        let entries =
            |counts: &TenantCounts| (counts.namespace.to_string(), counts.log_entries.load(Relaxed));
        assert_eq!(entries(&all[0]), (OTHER.to_owned(), 50));
        assert_eq!(entries(&all[1]), ("ns-0".to_owned(), 1));
    }

    #[test]
    fn further_tenants_do_not_wait_for_readers() {
        let tenants = Tenants::default();
        for number in 0..=MAX_TENANTS {
            tenants.of(&format!("ns-{number}"));
        }
        let _reader = tenants.named.read();
        std::thread::scope(|scope| {
            let counts = scope.spawn(|| tenants.of("another").namespace.clone()).join().unwrap();
            assert_eq!(&*counts, OTHER);
        });
    }
}
