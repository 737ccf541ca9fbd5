//! The metrics of a process, and the page with them.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::runtime::Handle;

use super::{
    definition::Definition,
    family::Family,
    page::{self, Contents},
    server::Server,
};

/// Serves the metrics of its handlers at one address, from the first handler to the last.
///
/// Handlers with equal definitions of a metric share its series. A handler that replaces another with a new configuration
/// continues its counts; in the original, too, only changed metrics were reset.
#[derive(Debug)]
pub(super) struct Exporter {
    address: String,
    families: Arc<Families>,
    /// Locked while waiting for the server's thread, so pages use another lock.
    serving: Mutex<Serving>,
}

#[derive(Debug, Default)]
struct Serving {
    leases: usize,
    server: Option<Server>,
}

/// Metrics by name; among those with the same name, the most recently requested is last.
#[derive(Debug, Default)]
struct Families(Mutex<BTreeMap<String, Vec<Known>>>);

#[derive(Debug)]
struct Known {
    family: Arc<Family>,
    help: String,
    /// When it was first seen without a handler.
    unused_since: Option<Instant>,
}

/// How long series outlive the last handler that defines their metric.
const RETENTION: Duration = Duration::from_secs(10 * 60);

/// The maximum number of metrics without a handler.
const RETAINED: usize = 1_000;

/// A claim on an exporter. The page is served while there is a claim.
#[derive(Debug)]
pub(super) struct Lease {
    exporter: Arc<Exporter>,
    runtime: Handle,
}

impl Exporter {
    /// Creates an exporter for an address, IP:PORT. It serves while there is a lease.
    pub(super) fn new(address: String) -> Self {
        Self { address, families: Arc::default(), serving: Mutex::default() }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the address of the page, with the chosen port if the configured one is 0.
    #[cfg(test)]
    pub(super) fn bound(&self) -> Option<std::net::SocketAddr> {
        self.serving().server.as_ref().map(|server| server.address)
    }

    /// Starts serving unless that goes on already; an error if the address cannot be had.
    pub(super) fn lease(self: &Arc<Self>) -> io::Result<Lease> {
        let mut serving = self.serving();
        let server = match &mut serving.server {
            Some(server) => server,
            stopped => {
                let families = self.families.clone();
                let page = move || page::render(&families.contents(Instant::now()), Instant::now());
                stopped.insert(Server::start(&self.address, page)?)
            }
        };
        let runtime = server.runtime().clone();
        serving.leases += 1;
        Ok(Lease { exporter: self.clone(), runtime })
    }

    fn serving(&self) -> MutexGuard<'_, Serving> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// The metric of that definition, which may have series already. The help text is the one given last.
    pub(super) fn family(&self, definition: Definition, help: String) -> Arc<Family> {
        self.exporter.families.get(definition, help, Instant::now())
    }

    /// Runs what the handler has to do beside its calls, off the threads that serve them.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut serving = self.exporter.serving();
        serving.leases -= 1;
        if serving.leases == 0 {
            // With the lock held: who comes next finds the address free.
            serving.server = None;
        }
    }
}

impl Known {
    /// Returns whether a handler updates the metric, or a page shows it at the moment.
    fn in_use(&self) -> bool {
        Arc::strong_count(&self.family) > 1
    }
}

impl Families {
    fn get(&self, definition: Definition, help: String, now: Instant) -> Arc<Family> {
        let mut families = self.lock();
        retain(&mut families, now);
        let known = families.entry(definition.name.clone()).or_default();
        let index = known.iter().position(|known| *known.family.definition() == definition);
        let family = index.map(|index| known.remove(index).family);
        if known.iter().any(Known::in_use) {
            tracing::warn!(metric = definition.name, "the metric changed; its old series are shown no more");
        }
        let family = family.unwrap_or_else(|| Arc::new(Family::new(definition)));
        known.push(Known { family: family.clone(), help, unused_since: None });
        family
    }

    fn contents(&self, now: Instant) -> Contents {
        let mut contents = Contents::default();
        let mut families = self.lock();
        retain(&mut families, now);
        for known in families.values() {
            contents.hidden += known.iter().filter(|known| known.in_use()).count().saturating_sub(1);
            let shown = known.iter().rfind(|known| known.in_use()).or(known.last());
            contents.families.extend(shown.map(|shown| (shown.family.clone(), shown.help.clone())));
        }
        contents
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Known>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes metrics that no handler has defined for [`RETENTION`], and beyond [`RETAINED`] those that are unused for the longest
/// time.
fn retain(families: &mut BTreeMap<String, Vec<Known>>, now: Instant) {
    let mut unused = Vec::new();
    for known in families.values_mut().flatten() {
        if known.in_use() {
            known.unused_since = None;
        } else {
            unused.push(*known.unused_since.get_or_insert(now));
        }
    }
    unused.sort_unstable();
    let beyond = unused.len().checked_sub(RETAINED + 1).map(|index| unused[index]);
    let expired = |since: Instant| {
        now.saturating_duration_since(since) > RETENTION || beyond.is_some_and(|beyond| since <= beyond)
    };
    families.retain(|_, known| {
        known.retain(|known| known.in_use() || !known.unused_since.is_some_and(expired));
        !known.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use super::{super::definition::Kind, *};

    fn counter(name: &str) -> Definition {
        Definition { name: name.to_owned(), kind: Kind::Counter, labels: Vec::new() }
    }

    fn shown(families: &Families, now: Instant) -> Vec<String> {
        let families = families.contents(now).families.into_iter();
        families.map(|(family, _)| family.definition().name.clone()).collect()
    }

    #[test]
    fn series_outlive_their_handlers_for_a_while() {
        let (families, start) = (Families::default(), Instant::now());
        let first = families.get(counter("c"), String::new(), start);
        assert!(first.record("", 20.0, None).is_ok());
        drop(first);
        assert_eq!(shown(&families, start), ["c"]);
        let again = families.get(counter("c"), String::new(), start + RETENTION);
        assert_eq!(again.samples(start).len(), 1, "it goes on counting");
        drop(again);
        assert_eq!(shown(&families, start + RETENTION), ["c"]);
        assert_eq!(shown(&families, start + 3 * RETENTION), [""; 0]);
    }

    #[test]
    fn the_number_of_metrics_without_a_handler_is_limited() {
        let (families, start) = (Families::default(), Instant::now());
        let used = families.get(counter("used"), String::new(), start);
        for number in 0..2 * RETAINED as u64 {
            let now = start + Duration::from_millis(number);
            drop(families.get(counter(&format!("c{number}")), String::new(), now));
        }
        let left = shown(&families, start + Duration::from_secs(60)).len();
        assert!(left <= RETAINED + 2, "{left}");
        drop(used);
    }
}
