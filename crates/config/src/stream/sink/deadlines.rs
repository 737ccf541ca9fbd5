use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

/// When resources of a collection expire (docs/behaviour/xds.md#ttl).
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    by_name: BTreeMap<Arc<str>, Instant>,
    by_time: BTreeSet<(Instant, Arc<str>)>,
}

impl Deadlines {
    /// Sets the deadline of a resource, in place of the one before.
    pub(super) fn set(&mut self, name: &str, at: Instant) {
        self.remove(name);
        let name: Arc<str> = name.into();
        self.by_name.insert(name.clone(), at);
        self.by_time.insert((at, name));
    }

    /// The resource does not expire.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some((name, at)) = self.by_name.remove_entry(name) {
            self.by_time.remove(&(at, name));
        }
    }

    /// The next one.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes a resource that has expired.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Arc<str>> {
        self.next().filter(|at| *at <= now)?;
        let (_, name) = self.by_time.pop_first()?;
        self.by_name.remove(&name);
        Some(name)
    }
}
