use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// When resources of a collection expire (docs/behaviour/xds.md#ttl).
///
/// Their time begins when the server is gone, and ends when it says something again. A server that is there removes resources by itself:
/// one that is slow, or whose new version of a resource was refused, must not make this side lose the version in use.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    lifetimes: BTreeMap<Arc<str>, Duration>,
    by_time: BTreeSet<(Instant, Arc<str>)>,
    /// The number of lifetimes beyond which those of resources that are not held are forgotten.
    bound: usize,
}

/// The least number of lifetimes beyond which those of resources that are not held are forgotten.
const LEAST_BOUND: usize = 100_000;

impl Deadlines {
    /// Sets how long a resource may be used without the server.
    pub(super) fn set(&mut self, name: &str, lifetime: Duration) {
        self.lifetimes.insert(name.into(), lifetime);
    }

    /// Forgets the names of resources that are not held, if there are many: a server can renew any.
    pub(super) fn bound(&mut self, is_held: impl Fn(&str) -> bool) {
        if self.lifetimes.len() > self.bound.max(LEAST_BOUND) {
            self.lifetimes.retain(|name, _| is_held(name));
            self.bound = 2 * self.lifetimes.len();
        }
    }

    /// The resource does not expire.
    pub(super) fn remove(&mut self, name: &str) {
        self.lifetimes.remove(name);
    }

    /// The server is gone. If it was before, the time goes on.
    pub(super) fn start(&mut self, now: Instant) {
        if self.by_time.is_empty() {
            let ends = self
                .lifetimes
                .iter()
                .filter_map(|(name, lifetime)| Some((now.checked_add(*lifetime)?, name.clone())));
            self.by_time = ends.collect();
        }
    }

    /// The server said something of the collection.
    pub(super) fn stop(&mut self) {
        self.by_time.clear();
    }

    /// The next one.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes a resource that has expired.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Arc<str>> {
        self.next().filter(|at| *at <= now)?;
        let (_, name) = self.by_time.pop_first()?;
        self.lifetimes.remove(&name);
        Some(name)
    }
}
