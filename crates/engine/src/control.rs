//! The controller: builds a snapshot from each update of the configuration, and installs it or rejects the update.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    Mixer,
    build::{BuildOptions, Connect, SnapshotBuilder},
};
use mixer_adapter_config::{
    Acceptance, Apply, AwaitedCollection, Collection, ConfigSet, Kind, LossPolicy, MergedSource, Progress,
    Topic, Update, ValidationError, Verdict, join_texts, limit_texts,
    source::{SourceHandle, unix_time},
};
use mixer_adapter_host::Host;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};

/// Builds snapshots of the engine from the configuration of sources.
pub struct Controller {
    mixer: Arc<Mixer>,
    host: Arc<Host>,
    connect: Arc<dyn Connect>,
    options: BuildOptions,
    set: ConfigSet,
    status: Arc<Mutex<ConfigStatus>>,
    losses: LossPolicy,
    /// The non-fatal faults of the configuration in use.
    faults: Vec<ValidationError>,
}

/// The number of faults that the status has.
const MAX_FAULTS: usize = 100;
/// The number of faults that are logged at once.
const MAX_LOGGED: usize = 20;

/// The number of deprecated fields that are counted apart.
const MAX_DEPRECATED_FIELDS: usize = 100;

/// The number of changes of the configuration that the status has.
const MAX_CHANGES: usize = 10;
/// The number of resources of a change that the status has.
const MAX_CHANGED: usize = 10;

/// The time in which the other collections of a source must become empty, too, after its rules.
const EMPTY_DELAY: Duration = Duration::from_secs(10);

/// The status of the configuration.
#[derive(Clone, Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct ConfigStatus {
    /// Number of updates applied.
    pub applied: u64,
    /// Number of updates rejected.
    pub rejected: u64,
    /// Time of the last applied update in seconds since the Unix epoch.
    pub applied_at: Option<u64>,
    /// The last changes since the first configuration, the newest first.
    pub changes: Vec<ConfigChange>,
    /// Number of times that a source lost all its resources. Such losses are not applied.
    pub lost: u64,
    /// Number of resources by collection.
    pub resources: BTreeMap<String, usize>,
    /// The version of each collection, as named by its source.
    pub versions: BTreeMap<String, String>,
    /// Number of new uses of deprecated fields.
    pub deprecated_uses: u64,
    /// New uses by field, for the first 100 fields; further fields are counted as `other`.
    pub deprecated_fields: BTreeMap<String, u64>,
    /// Non-fatal faults of the configuration in use.
    pub faults: Vec<String>,
    /// Faults of the rejected updates.
    pub refusal: Vec<String>,
    /// The collections that the first configuration waits for.
    pub awaited: Vec<AwaitedCollection>,
    /// Handles to the sources.
    #[serde(skip)]
    pub sources: Vec<Arc<dyn SourceHandle>>,
}

/// A change of the configuration in use.
#[derive(Clone, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct ConfigChange {
    /// Time of the change in seconds since the Unix epoch.
    pub at: u64,
    /// The name of its source.
    pub source: String,
    /// The first added, changed and removed resources with their places, and the number of the others.
    pub resources: Vec<String>,
    /// The first fields that changed, with their places and both values. Only those who may read values may see them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

impl ConfigStatus {
    /// Returns warnings about sources that are not connected, and a configuration in use that is empty or has no rules.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.sources.iter().flat_map(|source| source.warnings()).collect();
        let (mut resources, mut rules) = (0, 0);
        for (name, count) in &self.resources {
            let role = Collection::new(name).role();
            resources += if role.is_some() { *count } else { 0 };
            rules += if role == Some(Kind::Rule) { *count } else { 0 };
        }
        let text = match (resources, rules) {
            _ if self.applied == 0 => return warnings,
            (0, _) => "the configuration is empty, and every check is allowed",
            (_, 0) => "the configuration has no rules, and every check is allowed",
            _ => return warnings,
        };
        warnings.push(text.to_owned());
        warnings
    }

    /// Counts uses of deprecated fields.
    fn add_deprecated(&mut self, fields: Vec<String>) {
        self.deprecated_uses += fields.len() as u64;
        for field in fields {
            let has_place = self.deprecated_fields.len() < MAX_DEPRECATED_FIELDS;
            let is_counted = has_place || self.deprecated_fields.contains_key(&field);
            let field = if is_counted { field } else { "other".to_owned() };
            *self.deprecated_fields.entry(field).or_default() += 1;
        }
    }

    /// Returns the conditions that the first configuration waits for; empty after it.
    pub fn pending(&self) -> Vec<String> {
        if self.applied > 0 {
            return Vec::new();
        }
        let now = unix_time();
        let awaited = self.awaited.iter().map(|awaited| {
            let waited = now.saturating_sub(awaited.since);
            format!("{} from {} (for {waited} s)", awaited.collection, awaited.source)
        });
        let mut pending: Vec<String> = awaited.collect();
        if !self.refusal.is_empty() {
            pending.push(format!("a valid configuration: {}", join_texts(&self.refusal)));
        } else if pending.is_empty() {
            pending.push("a valid configuration".to_owned());
        }
        pending
    }
}

mixer_adapter_core::framework::debug_fields!(Controller { options });

impl Controller {
    /// Creates a controller of `mixer`.
    pub fn new(mixer: Arc<Mixer>, host: Arc<Host>, connect: Arc<dyn Connect>, options: BuildOptions) -> Self {
        Self {
            mixer,
            host,
            connect,
            options,
            set: ConfigSet::default(),
            status: Arc::default(),
            losses: LossPolicy::Protect { delay: EMPTY_DELAY },
            faults: Vec::new(),
        }
    }

    /// Sets the policy for updates that remove rules, or all resources, of a source. By default the last good configuration is
    /// protected, with a delay of 10 s.
    #[must_use]
    pub fn with_losses(self, losses: LossPolicy) -> Self {
        Self { losses, ..self }
    }

    /// The status of the configuration, which is updated as it changes.
    pub fn status(&self) -> Arc<Mutex<ConfigStatus>> {
        self.status.clone()
    }

    /// Applies the updates of the sources until all of them have ended.
    pub async fn follow(self, sources: Vec<MergedSource>) {
        let handles = sources.iter().filter_map(|merged| merged.source.handle()).collect();
        self.update_status(|status| status.sources = handles);
        let losses = self.losses;
        Acceptance::new(self).with_losses(losses).run(sources).await;
    }

    /// Logs non-fatal faults that the previous configuration did not have. Returns the deprecated fields among them.
    fn log_new_faults(&self, faults: &[ValidationError]) -> Vec<String> {
        // Most are those of before, in the same order.
        let same = self.faults.iter().zip(faults).take_while(|(before, now)| before == now).count();
        let (before, now) = (&self.faults[same..], &faults[same..]);
        let pairs = before.iter().rev().zip(now.iter().rev());
        let last = pairs.take_while(|(before, now)| before == now).count();
        let before: HashSet<String> = before[..before.len() - last].iter().map(ToString::to_string).collect();
        let now = now[..now.len() - last].iter();
        let new: Vec<&ValidationError> = now.filter(|fault| !before.contains(&fault.to_string())).collect();
        for text in limit_texts(&new, MAX_LOGGED) {
            tracing::warn!("{text}");
        }
        let deprecated = new.iter().filter(|fault| fault.topic == Topic::DeprecatedField);
        deprecated
            .map(|fault| fault.deprecation.as_ref().map_or(String::new(), |of| of.element.clone()))
            .collect()
    }

    fn update_status(&self, change: impl FnOnce(&mut ConfigStatus)) {
        change(&mut self.status.lock());
    }
}

impl Apply for Controller {
    async fn apply(&mut self, update: Update) -> Verdict {
        let Update { source, changes, mut faults } = update;
        let versions: Vec<(String, String)> =
            changes.iter().map(|change| (change.collection.to_string(), change.version.clone())).collect();
        let only_runtime = changes.iter().all(|change| change.collection.is_runtime());
        let (set, found) = self.set.apply(changes);
        faults.extend(found);
        let previous = self.mixer.snapshot();
        // Layers are not a configuration: until there is one, checks remain UNAVAILABLE.
        if only_runtime && previous.is_none() && !faults.iter().any(ValidationError::is_error) {
            self.set = set;
            return Ok(());
        }
        let builder = may_block(|| SnapshotBuilder::after(previous.as_deref(), &set, faults, &self.host));
        let (snapshot, faults) = builder.build(previous.as_deref(), &*self.connect, &self.options).await?;
        self.mixer.replace(snapshot);
        let deprecated = self.log_new_faults(&faults);
        let resources = set.counts();
        let changes = match previous {
            Some(_) => limit_texts(set.changes_since(&self.set), MAX_CHANGED),
            None => Vec::new(),
        };
        let fields: Vec<_> = match changes[..] {
            [] => Vec::new(),
            [..] => set.changed_fields(&self.set).take(MAX_CHANGED).collect(),
        };
        let changed = (!changes.is_empty()).then(|| join_texts(&changes));
        let resource_count: usize = resources.values().sum();
        tracing::info!(%source, resources = resource_count, changed, "configuration applied");
        self.set = set;
        let at = unix_time();
        self.update_status(|status| {
            let known = status.warnings();
            status.applied += 1;
            status.add_deprecated(deprecated);
            status.applied_at = Some(at);
            if !changes.is_empty() {
                status.changes.truncate(MAX_CHANGES - 1);
                let source = source.to_string();
                status.changes.insert(0, ConfigChange { at, source, resources: changes, fields });
            }
            status.resources =
                resources.into_iter().map(|(collection, count)| (collection.to_string(), count)).collect();
            status.versions.extend(versions);
            status.faults = limit_texts(&faults, MAX_FAULTS);
            for warning in status.warnings().iter().filter(|warning| !known.contains(warning)) {
                tracing::warn!("{warning}");
            }
        });
        self.faults = faults;
        Ok(())
    }

    fn check(&self, update: &Update) -> Verdict {
        let (_, mut faults) = ConfigSet::default().apply(update.changes.iter().cloned());
        faults.extend(update.faults.iter().cloned());
        let is_rejected = faults.iter().any(ValidationError::is_error) && !self.options.lenient;
        if is_rejected { Err(faults) } else { Ok(()) }
    }

    /// Records the rejected updates, and logs changes of them.
    fn report(&mut self, progress: Progress) {
        let faults = progress.refused.iter().flat_map(|update| &update.faults);
        let refusal = limit_texts(faults.filter(|fault| fault.is_error()), MAX_FAULTS);
        let sources: Vec<&str> = progress.refused.iter().map(|update| &*update.source).collect();
        self.update_status(|status| {
            status.rejected += progress.newly_refused;
            status.lost += progress.newly_lost;
            status.awaited = progress.awaited;
            if status.refusal == refusal {
                return;
            }
            for fault in limit_texts(&refusal, MAX_LOGGED) {
                tracing::error!("{fault}");
            }
            let source = sources.join(", ");
            match (refusal.is_empty(), status.applied > 0) {
                (true, _) => {}
                (false, true) => {
                    tracing::error!(source, "configuration rejected; the last good one remains in use");
                }
                (false, false) => tracing::error!(
                    source,
                    "configuration rejected; checks and reports are UNAVAILABLE until a valid one arrives"
                ),
            }
            status.refusal = refusal;
        });
    }
}

/// Runs the validation of adapters, which may block. On a runtime with several threads, others take over this thread's tasks: the
/// admin port and signals must not wait.
#[expect(clippy::disallowed_methods, reason = "the runtime has several threads")]
fn may_block<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(work),
        _ => work(),
    }
}
