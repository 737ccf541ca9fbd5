//! Keeps the engine's snapshot up to date: builds a snapshot of each update, and swaps it in or refuses the update.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use super::{
    Mixer,
    build::{Blueprint, BuildOptions, Connect},
};
use mixer_adapter_config::{
    Acceptance, Apply, Collection, ConfigSet, Fault, MergedSource, Topic, Update, Verdict,
    source::SourceHandle,
};
use mixer_adapter_host::Host;

/// Builds snapshots of the engine from the configuration of sources.
pub struct Controller {
    mixer: Arc<Mixer>,
    host: Arc<Host>,
    connect: Arc<dyn Connect>,
    options: BuildOptions,
    set: ConfigSet,
    status: Arc<Mutex<ConfigStatus>>,
}

/// Guards of readiness, each dropped when the configuration that it stands for is in use.
#[derive(Debug)]
pub struct Awaited<P> {
    /// Stands for any configuration.
    pub first: Option<P>,
    /// Stand for the first state of a collection, which may be empty.
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
    /// Handles to the sources.
    #[serde(skip)]
    pub sources: Vec<Arc<dyn SourceHandle>>,
}

impl Controller {
    /// Creates a controller of the configuration of `mixer`.
    pub fn new(mixer: Arc<Mixer>, host: Arc<Host>, connect: Arc<dyn Connect>, options: BuildOptions) -> Self {
        Self { mixer, host, connect, options, set: ConfigSet::default(), status: Arc::default() }
    }

    /// The status of the configuration, which is updated as it changes.
    pub fn status(&self) -> Arc<Mutex<ConfigStatus>> {
        self.status.clone()
    }

    /// Follows these sources until all of them have ended.
    pub async fn follow<P: Send>(self, sources: Vec<MergedSource>, awaited: Awaited<P>) {
        let handles = sources.iter().filter_map(|merged| merged.source.handle()).collect();
        self.update_status(|status| status.sources = handles);
        Acceptance::new(Follower { controller: self, awaited }).run(sources).await;
    }

    /// Records a refusal, and logs it unless it is the same as the last one.
    fn record_refusal(&self, source: &str, faults: &[Fault], configured: bool) {
        let refusal: Vec<String> = faults.iter().map(ToString::to_string).collect();
        self.update_status(|status| {
            status.rejected += 1;
            if status.refusal == refusal {
                return;
            }
            for fault in &refusal {
                tracing::error!("{fault}");
            }
            match configured {
                true => tracing::error!(%source, "configuration refused; the last good one stays in use"),
                false => tracing::error!(%source, "configuration refused; checks and reports are UNAVAILABLE until there is a good one"),
            }
            status.refusal = refusal;
        });
    }

    /// Logs non-fatal faults that the previous configuration did not have. Returns the number of deprecated fields among them.
    fn log_new_faults(&self, faults: &[Fault]) -> u64 {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let logged: HashSet<&str> = status.faults.iter().map(String::as_str).collect();
        let mut deprecated = 0;
        for (fault, text) in faults.iter().map(|fault| (fault, fault.to_string())) {
            if !logged.contains(text.as_str()) {
                tracing::warn!("{text}");
                deprecated += u64::from(fault.topic == Topic::DeprecatedField);
            }
        }
        deprecated
    }

    fn update_status(&self, change: impl FnOnce(&mut ConfigStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Apply for Controller {
    async fn apply(&mut self, update: Update) -> Verdict {
        let Update { source, changes, mut faults } = update;
        let versions: Vec<(String, String)> =
            changes.iter().map(|change| (change.collection.to_string(), change.version.clone())).collect();
        let (set, found) = self.set.apply(changes);
        faults.extend(found);
        let blueprint = Blueprint::read(&set, faults, &self.host);
        let former = self.mixer.snapshot();
        let (snapshot, faults) = match blueprint.build(former.as_deref(), &*self.connect, &self.options).await
        {
            Ok(built) => built,
            Err(faults) => {
                self.record_refusal(&source, &faults, former.is_some());
                return Err(faults);
            }
        };
        self.mixer.swap(snapshot);
        let deprecated_uses = self.log_new_faults(&faults);
        let resources = set.counts();
        tracing::info!(%source, resources = resources.values().sum::<usize>(), "configuration in use");
        self.set = set;
        self.update_status(|status| {
            status.applied += 1;
            status.deprecated_uses += deprecated_uses;
            status.applied_at = seconds_now();
            status.resources =
                resources.into_iter().map(|(collection, count)| (collection.to_string(), count)).collect();
            status.versions.extend(versions);
            status.faults = faults.iter().map(ToString::to_string).collect();
            status.refusal.clear();
        });
        Ok(())
    }
}

/// A controller, and what waits for its configuration.
struct Follower<P> {
    controller: Controller,
    awaited: Awaited<P>,
}

impl<P: Send> Apply for Follower<P> {
    async fn apply(&mut self, update: Update) -> Verdict {
        let collections: Vec<_> = update.changes.iter().map(|change| change.collection.clone()).collect();
        self.controller.apply(update).await?;
        self.awaited.first = None;
        self.awaited.collections.retain(|collection, _| !collections.contains(collection));
        Ok(())
    }
}

fn seconds_now() -> Option<u64> {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
}
