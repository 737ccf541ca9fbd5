use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// The expiry of resources of a collection (docs/behaviour/xds.md#ttl).
///
/// It begins when the server becomes unavailable, and ends with the next message from it. A connected server removes
/// resources itself: a slow server, or a rejected new version, must not expire the version in use.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    lifetimes: BTreeMap<Arc<str>, Duration>,
    by_time: BTreeSet<(Instant, Arc<str>)>,
    /// The number of lifetimes that triggers a sweep of lifetimes without a held resource.
    bound: usize,
}

/// The minimum of `Expiry::bound`.
const LEAST_BOUND: usize = 100_000;

impl Expiry {
    /// Sets the time to live of a resource after the server became unavailable.
    pub(super) fn set(&mut self, name: &str, lifetime: Duration) {
        self.lifetimes.insert(name.into(), lifetime);
    }

    /// Drops the names of resources that are not held, if there are many: a server can renew any name.
    pub(super) fn bound(&mut self, is_held: impl Fn(&str) -> bool) {
        if self.lifetimes.len() > self.bound.max(LEAST_BOUND) {
            self.lifetimes.retain(|name, _| is_held(name));
            self.bound = 2 * self.lifetimes.len();
        }
    }

    /// Removes the expiry of a resource.
    pub(super) fn remove(&mut self, name: &str) {
        self.lifetimes.remove(name);
    }

    /// Starts the expiry: the server is unavailable. A running one continues.
    pub(super) fn start(&mut self, now: Instant) {
        if self.by_time.is_empty() {
            let ends = self
                .lifetimes
                .iter()
                .filter_map(|(name, lifetime)| Some((now.checked_add(*lifetime)?, name.clone())));
            self.by_time = ends.collect();
        }
    }

    /// Stops the expiry: the source has sent a message about the collection.
    pub(super) fn stop(&mut self) {
        self.by_time.clear();
    }

    /// Returns the time of the next expiry.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Removes and returns a resource that has expired.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Arc<str>> {
        self.next().filter(|at| *at <= now)?;
        let (_, name) = self.by_time.pop_first()?;
        self.lifetimes.remove(&name);
        Some(name)
    }
}
