//! The metrics of a process, and the page with them.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Instant,
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
    family: Weak<Family>,
    help: String,
}

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
                let page = move || page::render(&families.contents(), Instant::now());
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
        self.exporter.families.get(definition, help)
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

impl Families {
    fn get(&self, definition: Definition, help: String) -> Arc<Family> {
        let mut families = self.lock();
        let known = families.entry(definition.name.clone()).or_default();
        known.retain(|known| known.family.strong_count() > 0);
        let index = known.iter().position(|known| {
            known.family.upgrade().is_some_and(|family| *family.definition() == definition)
        });
        let live = index.and_then(|index| known.remove(index).family.upgrade());
        if !known.is_empty() {
            tracing::warn!(metric = definition.name, "the metric changed; its old series are shown no more");
        }
        let family = live.unwrap_or_else(|| Arc::new(Family::new(definition)));
        known.push(Known { family: Arc::downgrade(&family), help });
        family
    }

    fn contents(&self) -> Contents {
        let mut contents = Contents::default();
        self.lock().retain(|_, known| {
            known.retain(|known| known.family.strong_count() > 0);
            let shown = known.last().and_then(|last| Some((last.family.upgrade()?, last.help.clone())));
            contents.hidden += known.len().saturating_sub(1);
            contents.families.extend(shown);
            !known.is_empty()
        });
        contents
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Known>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
