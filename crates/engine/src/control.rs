//! The controller: builds a snapshot from each update of the configuration, and installs it or rejects the update.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use super::{
    Mixer,
    build::{BuildOptions, Connect, SnapshotBuilder},
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

/// Readiness conditions of an engine; each value is dropped when its condition is met.
#[derive(Debug)]
pub struct ReadinessGates<P> {
    /// A configuration is in use.
    pub first: Option<P>,
    /// A state of the collection, possibly empty, is in use.
    pub collections: BTreeMap<Collection, P>,
}

/// The status of the configuration.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ConfigStatus {
    /// Number of updates applied.
    pub applied: u64,
    /// Number of updates rejected.
    pub rejected: u64,
    /// Time of the last applied update in seconds since the Unix epoch.
    pub applied_at: Option<u64>,
    /// Number of resources by collection.
    pub resources: BTreeMap<String, usize>,
    /// The version of each collection, as named by its source.
    pub versions: BTreeMap<String, String>,
    /// Number of new uses of deprecated fields.
    pub deprecated_uses: u64,
    /// Non-fatal faults of the configuration in use.
    pub faults: Vec<String>,
    /// Faults of the last update if it was rejected; otherwise empty.
    pub refusal: Vec<String>,
    /// Handles to the sources.
    #[serde(skip)]
    pub sources: Vec<Arc<dyn SourceHandle>>,
}

impl Controller {
    /// Creates a controller of `mixer`.
    pub fn new(mixer: Arc<Mixer>, host: Arc<Host>, connect: Arc<dyn Connect>, options: BuildOptions) -> Self {
        Self { mixer, host, connect, options, set: ConfigSet::default(), status: Arc::default() }
    }

    /// The status of the configuration, which is updated as it changes.
    pub fn status(&self) -> Arc<Mutex<ConfigStatus>> {
        self.status.clone()
    }

    /// Applies the updates of the sources until all of them have ended.
    pub async fn follow<P: Send>(self, sources: Vec<MergedSource>, gates: ReadinessGates<P>) {
        let handles = sources.iter().filter_map(|merged| merged.source.handle()).collect();
        self.update_status(|status| status.sources = handles);
        Acceptance::new(GatedController { controller: self, gates }).run(sources).await;
    }

    /// Records a rejected update, and logs it unless its faults are those of the previous one.
    fn record_rejection(&self, source: &str, faults: &[Fault], configured: bool) {
        let rejection: Vec<String> = faults.iter().map(ToString::to_string).collect();
        self.update_status(|status| {
            status.rejected += 1;
            if status.refusal == rejection {
                return;
            }
            for fault in &rejection {
                tracing::error!("{fault}");
            }
            match configured {
                true => tracing::error!(%source, "configuration rejected; the previous one remains in use"),
                false => tracing::error!(%source, "configuration rejected; checks and reports are UNAVAILABLE until a valid one arrives"),
            }
            status.refusal = rejection;
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
        let builder = SnapshotBuilder::new(&set, faults, &self.host);
        let previous = self.mixer.snapshot();
        let (snapshot, faults) = match builder.build(previous.as_deref(), &*self.connect, &self.options).await
        {
            Ok(built) => built,
            Err(faults) => {
                self.record_rejection(&source, &faults, previous.is_some());
                return Err(faults);
            }
        };
        self.mixer.replace(snapshot);
        let deprecated_uses = self.log_new_faults(&faults);
        let resources = set.counts();
        tracing::info!(%source, resources = resources.values().sum::<usize>(), "configuration applied");
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

/// A controller that opens readiness gates.
struct GatedController<P> {
    controller: Controller,
    gates: ReadinessGates<P>,
}

impl<P: Send> Apply for GatedController<P> {
    async fn apply(&mut self, update: Update) -> Verdict {
        let collections: Vec<_> = update.changes.iter().map(|change| change.collection.clone()).collect();
        self.controller.apply(update).await?;
        self.gates.first = None;
        self.gates.collections.retain(|collection, _| !collections.contains(collection));
        Ok(())
    }
}

fn seconds_now() -> Option<u64> {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
}
