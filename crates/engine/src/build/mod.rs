//! Builds a snapshot from resources.
//!
//! The order is attributes, templates, adapters, handlers, instances, rules
//! (docs/behaviour/configuration.md#processing-order). All faults are reported, each with its resource and field.

mod actions;
mod annotations;
mod assemble;
mod condition;
mod evasion;
mod faults;
mod handlers;
mod headers;
mod index;
mod instances;
mod open;
mod quotas;
mod rule_index;
mod rule_spec;
mod schemas;
mod shadow;
mod unreported;
mod usage;

use std::{collections::BTreeSet, sync::Arc};

pub use handlers::{BackendSpec, HandlerSpec};
pub use instances::known_templates;
pub use open::{BoxBackend, Connect, Connecting, Connector};
pub use schemas::standard as standard_vocabulary;
pub use unreported::unreported;
pub use usage::unused;

use super::{
    attribute::{UsedSlots, Vocabulary},
    cache::{CacheLimits, CachedChecks, CheckCache},
    dispatch::{FailurePolicy, OnUnknownQuota},
    shadow::kind::ShadowKind,
    snapshot::{NamespaceSlots, Snapshot, global_slots},
};
use handlers::Refused;
use mixer_adapter_config::{ConfigSet, Kind, ResourceName, Severity, Topic, ValidationError};
use mixer_adapter_core::framework::{settings, version::Stage};
use mixer_adapter_host::Host;
use quotas::Quotas;
use rule_index::RuleIndex;
use unreported::Unreported;

settings! {
    /// Options for building a snapshot.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct BuildOptions {
        /// The namespace whose rules apply to every request; `istio-system` by default.
        default_namespace: String = "istio-system".to_owned(),
        /// Drop faulty resources, as Mixer does, instead of rejecting the configuration.
        lenient: bool = false,
        /// The failure policy.
        policy: FailurePolicy = FailurePolicy::default(),
        /// The policy for unknown and deprecated fields.
        fields: FieldPolicy = FieldPolicy::default(),
        /// Limits of the cache of check answers; none by default, as in Mixer since 1.1.
        check_cache: CacheLimits = CacheLimits::default(),
        /// Limits of the cache of the answers to [strict](crate::dispatch::Request::strict) requests; none by default.
        strict_check_cache: CacheLimits = CacheLimits::default(),
        /// The checks that the caches answer; by default costly ones.
        cached_checks: CachedChecks = CachedChecks::default(),
        /// Whether answers do not count: the configuration is evaluated in the [shadow](crate::Shadow) of another one.
        is_shadow: bool = false,
    }
}

settings! {
    /// The policy for fields that another version of the API interprets differently
    /// (docs/behaviour/xds.md#versions-of-the-api). A rejection applies to the whole configuration, even in lenient mode.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct FieldPolicy {
        /// Unknown fields of received resources, whose sender has a newer API. Fields of files have names, and an unknown
        /// name is always an error.
        unknown: OnField = OnField::default(),
        /// Deprecated fields.
        deprecated: OnDeprecated = OnDeprecated::default(),
        /// The full names of deprecated fields that are accepted with a warning although the policy rejects them,
        /// `shop.v1.Params.old`.
        allowed: BTreeSet<String> = BTreeSet::default(),
    }
}

/// The treatment of a configuration with such a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnField {
    /// Accept it.
    Ignore,
    /// Accept it with a warning.
    #[default]
    Warn,
    /// Reject it.
    Refuse,
}

/// The treatment of a configuration with a deprecated field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDeprecated {
    /// Accept it.
    Ignore,
    /// Accept it with a warning.
    Warn,
    /// Reject it, unless it is allowed.
    Refuse,
    /// Accept it with a warning in the release of the mark, reject it in the next unless it is allowed, and always in later ones.
    #[default]
    Schedule,
}

impl FieldPolicy {
    /// Applies the policy to faults; returns whether it rejects the configuration.
    fn judge(&self, faults: &mut Vec<ValidationError>) -> bool {
        faults.retain(|fault| self.treatment(fault) != Some(OnField::Ignore));
        let mut refused = false;
        for fault in faults.iter_mut().filter(|fault| self.treatment(fault) == Some(OnField::Refuse)) {
            fault.severity = Severity::Error;
            refused = true;
        }
        refused
    }

    fn treatment(&self, fault: &ValidationError) -> Option<OnField> {
        let deprecation = match fault.topic {
            Topic::Configuration | Topic::InvalidConstant => return None,
            Topic::UnknownField => return Some(self.unknown),
            Topic::DeprecatedField => fault.deprecation.as_deref(),
        };
        let allowed = deprecation.is_some_and(|of| self.allowed.contains(&of.element));
        Some(match (self.deprecated, deprecation.map(|of| of.stage)) {
            (OnDeprecated::Ignore, _) => OnField::Ignore,
            (OnDeprecated::Schedule, Some(Stage::Gone)) => OnField::Refuse,
            (OnDeprecated::Schedule, Some(Stage::Fails)) | (OnDeprecated::Refuse, _) if !allowed => {
                OnField::Refuse
            }
            _ => OnField::Warn,
        })
    }
}

/// A parsed, resolved and compiled configuration whose handlers are not opened yet.
#[derive(Debug)]
pub struct SnapshotBuilder {
    compiled: CompiledConfig,
    live: Part,
    /// The actions in the shadow.
    shadow: Part,
    faults: Vec<ValidationError>,
    /// The deprecated fields that layers of the runtime allow.
    allowed: BTreeSet<String>,
}

/// The compiled resources of a snapshot. The next snapshot shares the unchanged ones.
#[derive(Debug, Default)]
struct CompiledConfig {
    set: ConfigSet,
    vocabulary: Arc<Vocabulary>,
    templates: schemas::Templates,
    adapters: schemas::Adapters,
    handlers: handlers::Handlers,
    instances: instances::Instances,
    rules: actions::Rules,
    quotas: Quotas,
    /// The rules that count, and the rules in the shadow.
    parts: [RuleIndex; 2],
    /// The handlers of both parts, if adapters found no faults in any handler.
    valid: Option<[Vec<Arc<HandlerSpec>>; 2]>,
    /// Whether adapters refuse instances of reports.
    has_refused: bool,
}

impl CompiledConfig {
    /// Returns the configuration that a snapshot was built from.
    fn of(snapshot: Option<&Snapshot>) -> Option<&Self> {
        snapshot.and_then(|snapshot| snapshot.compiled.downcast_ref())
    }
}

/// The compiled resources of the former snapshot.
struct Former<'f> {
    compiled: &'f CompiledConfig,
    /// The names of resources that are new, changed or gone.
    changed: Vec<&'f ResourceName>,
}

/// The handlers that rules use.
#[derive(Debug)]
struct Part {
    /// The index of the rules in [`CompiledConfig::parts`].
    index: usize,
    handlers: Vec<Arc<HandlerSpec>>,
    refused: Refused,
}

impl Part {
    /// Has adapters validate the handlers that rules use.
    fn new(
        index: usize,
        used: Vec<Arc<HandlerSpec>>,
        host: &Host,
        faults: &mut Vec<ValidationError>,
        is_valid: &mut bool,
    ) -> Self {
        let mut found = Vec::new();
        let (handlers, refused) = handlers::validate(used, host, &mut found);
        *is_valid &= found.is_empty();
        found.retain(|fault| !faults.contains(fault));
        faults.extend(found);
        Self { index, handlers, refused }
    }

    /// Makes it a part whose answers do not count.
    fn in_shadow(mut self) -> Self {
        self.handlers.iter_mut().for_each(|spec| *spec = Arc::new(spec.in_shadow()));
        self
    }
}

impl SnapshotBuilder {
    /// Compiles a set of resources, whose `faults` so far are given. `host` has the adapters of this process, to
    /// which `compiledAdapter` refers.
    pub fn new(set: &ConfigSet, faults: Vec<ValidationError>, host: &Host) -> Self {
        Self::after(None, set, faults, host)
    }

    /// Compiles a set as [`new`](Self::new) does, but reuses the unchanged parts of a snapshot of the same host.
    pub fn after(
        former: Option<&Snapshot>,
        set: &ConfigSet,
        mut faults: Vec<ValidationError>,
        host: &Host,
    ) -> Self {
        let former = CompiledConfig::of(former);
        let former =
            former.map(|compiled| Former { compiled, changed: set.names_since(&compiled.set).collect() });
        let former = former.as_ref();
        let vocabulary = schemas::vocabulary(set, &mut faults);
        let vocabulary = match former {
            Some(Former { compiled, .. }) if *compiled.vocabulary == vocabulary => {
                compiled.vocabulary.clone()
            }
            _ => Arc::new(vocabulary),
        };
        let templates = schemas::templates(set, former, &mut faults);
        let adapters = schemas::adapters(set, &templates, former, &mut faults);
        let handlers = handlers::read(set, &adapters, host, former, &mut faults);
        let instances = instances::read(set, &templates, &vocabulary, host, former, &mut faults);
        let rules = actions::read(set, &handlers, &instances, &vocabulary, former, &mut faults);
        let quotas = Quotas::find(set, &instances, former);
        faults.extend(quotas.lint(set));
        let former = former.map(|former| former.compiled);
        let parts = actions::index(&rules, former.unwrap_or(&CompiledConfig::default()));
        let same = former.filter(|former| actions::call_the_same(&rules, &handlers, former));
        let mut valid = same.and_then(|former| former.valid.clone());
        let of_part = |part: usize| rules.iter().filter_map(move |(_, parts)| parts[part].as_deref());
        let [live, shadow] = match valid.clone() {
            Some([used, shadowed]) => [
                Part { index: 0, handlers: used, refused: Refused::new() },
                Part { index: 1, handlers: shadowed, refused: Refused::new() },
            ],
            None => {
                let (used, mut unused) = handlers::by_use(&handlers, of_part(0));
                let (shadowed, _) = handlers::by_use(&handlers, of_part(1));
                unused.retain(|spec| shadowed.iter().all(|shadowed| shadowed.name != spec.name));
                let known = faults.len();
                handlers::validate(unused, host, &mut faults);
                let mut is_valid = faults.len() == known;
                let live = Part::new(0, used, host, &mut faults, &mut is_valid);
                let shadow = Part::new(1, shadowed, host, &mut faults, &mut is_valid).in_shadow();
                valid = is_valid.then(|| [live.handlers.clone(), shadow.handlers.clone()]);
                [live, shadow]
            }
        };
        let has_refused = !(live.refused.is_empty() && shadow.refused.is_empty());
        let (set, allowed) = (set.clone(), set.allowed_deprecated());
        let compiled = CompiledConfig {
            set,
            vocabulary,
            templates,
            adapters,
            handlers,
            instances,
            rules,
            quotas,
            parts,
            valid,
            has_refused,
        };
        Self { compiled, live, shadow, faults, allowed }
    }

    /// Returns the faults of the configuration. Fields that the policy rejects are errors.
    pub fn faults(mut self, policy: &FieldPolicy) -> Vec<ValidationError> {
        self.judge(policy);
        self.faults
    }

    /// Applies the policy for fields; returns whether it rejects the configuration.
    fn judge(&mut self, policy: &FieldPolicy) -> bool {
        let mut policy = policy.clone();
        policy.allowed.append(&mut self.allowed);
        policy.judge(&mut self.faults)
    }

    /// Opens the handlers, except those carried over from the previous snapshot, and assembles the snapshot. Returns
    /// all faults; unless the options are lenient, an error among them rejects the configuration.
    pub async fn build(
        mut self,
        former: Option<&Snapshot>,
        connect: &dyn Connect,
        options: &BuildOptions,
    ) -> Result<(Snapshot, Vec<ValidationError>), Vec<ValidationError>> {
        let is_rejected = self.judge(&options.fields);
        let mut faults = self.faults;
        if options.lenient {
            // As in Mixer, such a constant is an error of the requests that need it.
            let constants = faults.iter_mut().filter(|fault| fault.topic == Topic::InvalidConstant);
            constants.for_each(|fault| fault.severity = Severity::Warning);
        }
        if is_rejected || (!options.lenient && faults.iter().any(ValidationError::is_error)) {
            return Err(faults);
        }
        let (compiled, before) = (Arc::new(self.compiled), CompiledConfig::of(former));
        let unreported = Unreported(connect);
        let connect = if options.is_shadow { &unreported } else { connect };
        let live = if options.is_shadow { self.live.in_shadow() } else { self.live };
        let mut snapshot = live.snapshot(&compiled, before, former, connect, options, &mut faults).await;
        let has_faults = faults.iter().any(ValidationError::is_error);
        if has_faults && !options.lenient {
            return Err(faults);
        }
        snapshot.has_faults = has_faults;
        snapshot.compiled = compiled.clone();
        snapshot.shadow_kind = options.is_shadow.then_some(ShadowKind::Configuration);
        let cache_counts = former.map(|former| former.cache_counts.clone()).unwrap_or_default();
        snapshot.cache = CheckCache::new(options.check_cache, cache_counts.clone());
        snapshot.strict_cache = CheckCache::new(options.strict_check_cache, cache_counts.clone());
        snapshot.cached_checks = options.cached_checks;
        snapshot.decide_caching();
        snapshot.cache_counts = cache_counts;
        if !compiled.parts[1].places.is_empty() {
            let former = former.and_then(|former| former.shadow.as_deref());
            let mut found = Vec::new();
            let mut shadow =
                self.shadow.snapshot(&compiled, before, former, &unreported, options, &mut found).await;
            shadow.shadow_kind = Some(ShadowKind::Rules);
            // A quota that only the rules in use have is not unknown.
            shadow.policy.unknown_quota = OnUnknownQuota::Grant;
            snapshot.shadow = Some(Arc::new(shadow));
            // A handler in the shadow that cannot be opened does not prevent the use of the others.
            found.iter_mut().for_each(|fault| fault.severity = Severity::Warning);
            faults.extend(found);
        }
        Ok((snapshot, faults))
    }
}

impl Part {
    /// Opens the handlers, except those carried over from the previous snapshot, and assembles a snapshot. A namespace with the rules of
    /// the configuration `before` shares its tables with the previous snapshot.
    async fn snapshot(
        self,
        compiled: &CompiledConfig,
        before: Option<&CompiledConfig>,
        former: Option<&Snapshot>,
        connect: &dyn Connect,
        options: &BuildOptions,
        faults: &mut Vec<ValidationError>,
    ) -> Snapshot {
        let resource_counts = former.map(|former| former.resource_counts.clone()).unwrap_or_default();
        resource_counts.sweep();
        let opened = open::open_all(&self.handlers, former, connect, &resource_counts, faults).await;
        let CompiledConfig { vocabulary, parts, rules, .. } = compiled;
        // The bag of a request also has the attributes for its evaluation in the shadow.
        let slots = parts[self.index..].iter().flat_map(RuleIndex::slots);
        let mut snapshot = Snapshot {
            namespace_slots: NamespaceSlots::of(vocabulary),
            global_slots: global_slots(vocabulary),
            used: Arc::new(UsedSlots::new(vocabulary, slots)),
            vocabulary: vocabulary.clone(),
            handlers: opened.values().cloned().collect(),
            policy: options.policy,
            default_namespace: options.default_namespace.as_str().into(),
            resource_counts: resource_counts.clone(),
            places: parts[self.index].places.clone(),
            ..Snapshot::empty()
        };
        let none = CompiledConfig::default();
        let before = before.filter(|before| !before.has_refused && !compiled.has_refused);
        let shared = before.zip(former).filter(|(_, former)| snapshot.shares_tables(former));
        let before = shared.map_or(&none, |(before, former)| {
            snapshot.share_tables(former);
            before
        });
        let changed: BTreeSet<&str> =
            rules.changed_since(&before.rules).map(ResourceName::namespace).collect();
        for namespace in changed {
            let of_namespace = rules.of_namespace(Kind::Rule, namespace);
            let of_part = of_namespace.filter_map(|parts| parts[self.index].as_deref());
            let assembled = assemble::assemble(of_part, &opened, &self.refused, &resource_counts);
            snapshot.set_rules(&namespace.into(), assembled);
        }
        snapshot
    }
}
