//! What keeps the engine's snapshot up to date: configuration comes, is built, and is swapped in or refused.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use tokio::sync::mpsc;

use super::{
    Mixer,
    build::{Blueprint, BuildOptions, Connect},
};
use mixer_adapter_config::{
    Collection, ConfigSet, Fault, Topic,
    source::{Source, Update, Watched},
};
use mixer_adapter_host::Host;

/// Follows sources of configuration.
pub struct Controller {
    mixer: Arc<Mixer>,
    host: Arc<Host>,
    connect: Arc<dyn Connect>,
    options: BuildOptions,
    set: ConfigSet,
    status: Arc<Mutex<ConfigStatus>>,
}

/// What waits for configuration. Each is dropped when what it waits for is in use.
#[derive(Debug)]
pub struct Awaited<P> {
    /// Waits for any configuration.
    pub first: Option<P>,
    /// Wait for something of a collection, if it is that there is nothing in it.
    pub collections: BTreeMap<Collection, P>,
}

/// What is known about the configuration in use, for people.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ConfigStatus {
    /// How many updates were put to use.
    pub applied: u64,
    /// How many were refused.
    pub rejected: u64,
    /// Seconds since the epoch, of the last that was put to use.
    pub applied_at: Option<u64>,
    /// How many resources there are, by collection.
    pub resources: BTreeMap<String, usize>,
    /// The version that each source calls its state, by collection.
    pub versions: BTreeMap<String, String>,
    /// How often a deprecated field came to be used.
    pub deprecated_uses: u64,
    /// What is wrong with the configuration in use, and yet let through.
    pub faults: Vec<String>,
    /// Why the last update was refused; empty once a later one is in use.
    pub refusal: Vec<String>,
    /// The sources that are followed.
    #[serde(skip)]
    pub watched: Vec<Arc<dyn Watched>>,
}

impl Controller {
    /// Keeps that engine up to date.
    pub fn new(mixer: Arc<Mixer>, host: Arc<Host>, connect: Arc<dyn Connect>, options: BuildOptions) -> Self {
        Self { mixer, host, connect, options, set: ConfigSet::default(), status: Arc::default() }
    }

    /// What is known about the configuration in use, as it changes.
    pub fn status(&self) -> Arc<Mutex<ConfigStatus>> {
        self.status.clone()
    }

    /// Follows a source for as long as it goes on.
    pub async fn follow<P>(mut self, source: Box<dyn Source>, mut awaited: Awaited<P>) {
        self.note(|status| status.watched = source.watched());
        let (updates, mut received) = mpsc::channel::<Update>(1);
        let running = source.run(updates);
        let followed = async {
            while let Some(update) = received.recv().await {
                let collections: Vec<_> =
                    update.changes.iter().map(|change| change.collection.clone()).collect();
                if self.apply(update).await {
                    awaited.first = None;
                    awaited.collections.retain(|collection, _| !collections.contains(collection));
                }
            }
        };
        tokio::join!(running, followed);
    }

    /// Puts an update to use, or refuses it. Returns whether it is in use.
    pub async fn apply(&mut self, update: Update) -> bool {
        let Update { source, changes, mut faults, responder } = update;
        let versions: Vec<(String, String)> =
            changes.iter().map(|change| (change.collection.to_string(), change.version.clone())).collect();
        let (set, found) = self.set.apply(changes);
        faults.extend(found);
        let blueprint = Blueprint::read(&set, faults, &self.host);
        let former = self.mixer.snapshot();
        match blueprint.build(former.as_deref(), &*self.connect, &self.options).await {
            Ok((snapshot, faults)) => {
                self.mixer.swap(snapshot);
                let deprecated_uses = self.tell_new(&faults);
                let resources = set.counts();
                tracing::info!(%source, resources = resources.values().sum::<usize>(), "configuration in use");
                self.set = set;
                self.note(|status| {
                    status.applied += 1;
                    status.deprecated_uses += deprecated_uses;
                    status.applied_at = seconds_now();
                    status.resources = resources
                        .into_iter()
                        .map(|(collection, count)| (collection.to_string(), count))
                        .collect();
                    status.versions.extend(versions);
                    status.faults = faults.iter().map(ToString::to_string).collect();
                    status.refusal.clear();
                });
                responder.ack();
                true
            }
            Err(faults) => {
                let refusal: Vec<String> = faults.iter().map(ToString::to_string).collect();
                self.note(|status| {
                    status.rejected += 1;
                    // A refusal that is the same as the last one was told already.
                    if status.refusal != refusal {
                        for fault in &faults {
                            tracing::error!("{fault}");
                        }
                        match &former {
                            Some(_) => tracing::error!(%source, "the configuration is refused; the last good one stays in use"),
                            None => tracing::error!(%source, "the configuration is refused; until there is a good one, checks and reports are UNAVAILABLE"),
                        }
                        status.refusal = refusal;
                    }
                });
                responder.reject(faults);
                false
            }
        }
    }

    /// Tells the faults that are let through, but for those of the configuration before. Returns how many of them are uses of
    /// deprecated fields.
    fn tell_new(&self, faults: &[Fault]) -> u64 {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let told: HashSet<&str> = status.faults.iter().map(String::as_str).collect();
        let mut deprecated = 0;
        for (fault, text) in faults.iter().map(|fault| (fault, fault.to_string())) {
            if !told.contains(text.as_str()) {
                tracing::warn!("{text}");
                deprecated += u64::from(fault.topic == Topic::DeprecatedField);
            }
        }
        deprecated
    }

    fn note(&self, change: impl FnOnce(&mut ConfigStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn seconds_now() -> Option<u64> {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
}
