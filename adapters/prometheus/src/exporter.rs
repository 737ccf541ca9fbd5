//! The metrics of a process, and the page with them.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use mixer_adapter_core::{
    metrics::Metrics,
    retention::{self, Entry, Retention, RetentionLimits},
};
use tokio::{runtime::Handle, sync::Semaphore};

use super::{
    definition::Definition,
    family::{Family, LABEL_BYTES},
    page::{self, Contents},
    server::Server,
};

/// Serves the metrics of its handlers at one address, from the first handler to the last.
///
/// Handlers with equal definitions of a metric share its series. A handler that replaces another with a new configuration
/// continues its counts; in the original, too, only changed metrics were reset.
#[derive(Debug)]
pub(super) struct Exporter {
    pub(super) address: String,
    metrics: Metrics,
    families: Arc<Families>,
    /// The bytes that the labels of further series may have.
    free_bytes: Arc<Semaphore>,
    /// Locked while waiting for the server's thread, so pages use another lock.
    serving: Mutex<Serving>,
}

#[derive(Debug, Default)]
struct Serving {
    leases: usize,
    server: Option<Server>,
}

/// Metrics by their definition.
type Families = Retention<Definition, Family>;

/// A use of a metric by a handler.
pub(super) type FamilyLease = retention::Lease<Definition, Family>;

/// The time for which series outlive the last handler that defines their metric, and the memory of all such series.
const RETENTION: RetentionLimits = RetentionLimits::new(16 << 20, Duration::from_secs(10 * 60));

/// A claim on an exporter. The page is served while there is a claim.
#[derive(Debug)]
pub(super) struct Lease {
    exporter: Arc<Exporter>,
    /// Runs background work of the handler, off the threads that serve calls.
    pub(super) runtime: Handle,
}

impl Exporter {
    /// Creates an exporter for an address, IP:PORT. It serves while there is a lease.
    pub(super) fn new(address: String, metrics: Metrics) -> Self {
        let families = Arc::new(Families::new(RETENTION));
        let free_bytes = Arc::new(Semaphore::new(LABEL_BYTES));
        Self { address, metrics, families, free_bytes, serving: Mutex::default() }
    }

    /// Returns the address of the page, with the chosen port if the configured one is 0.
    #[cfg(test)]
    pub(super) fn bound(&self) -> Option<std::net::SocketAddr> {
        self.serving.lock().server.as_ref().map(|server| server.address)
    }

    /// Starts serving unless it is running; an error if the address is not available.
    pub(super) fn lease(self: &Arc<Self>) -> io::Result<Lease> {
        let mut serving = self.serving.lock();
        let server = match &mut serving.server {
            Some(server) => server,
            stopped => {
                let families = self.families.clone();
                stopped.insert(Server::start(&self.address, &self.metrics, move || {
                    page::lines(contents(&families, Instant::now()), Instant::now())
                })?)
            }
        };
        let runtime = server.runtime.clone();
        serving.leases += 1;
        Ok(Lease { exporter: self.clone(), runtime })
    }
}

impl Lease {
    /// Logs which of these definitions replace others of their names that are in use.
    pub(super) fn warn_of_changes<'d>(&self, definitions: impl Iterator<Item = &'d Definition>) {
        warn_of_changes(&self.exporter.families, definitions);
    }

    /// The metric of that definition, which may have series already. The help text is the one given last.
    pub(super) fn family(&self, definition: Definition, help: String) -> FamilyLease {
        let Exporter { families, free_bytes, .. } = &*self.exporter;
        family(families, free_bytes, definition, help, Instant::now())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut serving = self.exporter.serving.lock();
        serving.leases -= 1;
        if serving.leases == 0 {
            // With the lock held: who comes next finds the address free.
            serving.server = None;
        }
    }
}

fn family(
    families: &Arc<Families>,
    free_bytes: &Arc<Semaphore>,
    definition: Definition,
    help: String,
    now: Instant,
) -> FamilyLease {
    let family = families
        .acquire(definition.clone(), now, || Arc::new(Family::new(definition.clone(), free_bytes.clone())));
    family.set_help(help);
    family
}

/// Logs which of these definitions replace others of their names that are in use.
fn warn_of_changes<'d>(families: &Families, definitions: impl Iterator<Item = &'d Definition>) {
    let entries = families.entries().into_iter().filter(|(_, entry)| entry.is_used);
    let used: HashMap<String, Definition> =
        entries.map(|(definition, _)| (definition.name.clone(), definition)).collect();
    let changed = definitions.filter(|new| used.get(&new.name).is_some_and(|used| used != *new));
    for definition in changed.take(MAX_WARNINGS) {
        tracing::warn!(metric = definition.name, "the metric changed; its old series are shown no more");
    }
}

/// The number of changed metrics of a handler that are logged.
const MAX_WARNINGS: usize = 10;

/// Returns the metrics of the page. Among metrics of the same name, open handlers come first, then the last requested one.
fn contents(families: &Families, now: Instant) -> Contents {
    families.sweep(now);
    let mut by_name: BTreeMap<String, Vec<Entry<Family>>> = BTreeMap::new();
    for (definition, entry) in families.entries() {
        by_name.entry(definition.name).or_default().push(entry);
    }
    let mut contents = Contents { evicted: families.evicted(), ..Contents::default() };
    for entries in by_name.into_values() {
        contents.hidden += entries.iter().filter(|entry| entry.is_used).count().saturating_sub(1);
        let shown = entries.into_iter().max_by_key(|entry| (entry.is_used, entry.acquired));
        contents.families.extend(shown.map(|shown| shown.state));
    }
    contents
}

#[cfg(test)]
mod tests {
    use mixer_adapter_telemetry::series::Kind;

    use super::*;

    fn counter(name: &str) -> Definition {
        Definition { name: name.to_owned(), kind: Kind::Counter, labels: Vec::new() }
    }

    fn shown(families: &Families, now: Instant) -> Vec<String> {
        let families = contents(families, now).families.into_iter();
        families.map(|family| family.definition.name.clone()).collect()
    }

    fn open(families: &Arc<Families>, name: &str, now: Instant) -> FamilyLease {
        family(families, &Arc::new(Semaphore::new(LABEL_BYTES)), counter(name), String::new(), now)
    }

    #[test]
    fn series_outlive_their_handlers_for_a_while() {
        let (families, start) = (Arc::new(Families::new(RETENTION)), Instant::now());
        let first = open(&families, "c", start);
        assert!(first.series.record("", 20.0, None).is_ok());
        drop(first);
        assert_eq!(shown(&families, start), ["c"]);
        let again = open(&families, "c", start);
        assert_eq!(again.series.samples(start).len(), 1, "it goes on counting");
        drop(again);
        assert_eq!(shown(&families, start), ["c"]);
        assert_eq!(shown(&families, Instant::now() + RETENTION.time), [""; 0]);
    }

    #[test]
    fn the_memory_of_metrics_without_a_handler_is_limited() {
        let limits = RetentionLimits::new(4 << 10, RETENTION.time);
        let (families, now) = (Arc::new(Families::new(limits)), Instant::now());
        let used = open(&families, "used", now);
        for number in 0..100 {
            assert!(open(&families, &format!("c{number}"), now).series.record("", 1.0, None).is_ok());
        }
        let page = contents(&families, now);
        assert!(families.retained_bytes() <= limits.bytes);
        assert_eq!(page.families.len() as u64, 101 - page.evicted);
        assert!(page.evicted > 0);
        drop(used);
    }
}
