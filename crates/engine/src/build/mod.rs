//! From resources to a snapshot (docs/behaviour/configuration.md#processing-order): attributes, templates, adapters, handlers,
//! instances and rules, in this order. Every fault is found, not only the first, and says which field of which resource it is in.

mod actions;
mod assemble;
mod handlers;
mod headers;
mod index;
mod instances;
mod open;
mod schemas;

use std::sync::Arc;

pub use handlers::{HandlerSpec, Use};
pub use open::{Connect, Connector, OpenFault, Opened};

use super::{
    attribute::Vocabulary,
    cache::CheckCache,
    dispatch::FailurePolicy,
    snapshot::{NamespaceSlots, Snapshot, global_slots},
};
use actions::RuleSpec;
use mixer_adapter_config::{ConfigSet, Fault, ResourceName, Severity, Topic, lint};
use mixer_adapter_host::Host;

/// How a snapshot is built.
pub struct BuildOptions {
    /// The namespace whose rules apply to every request: `istio-system` unless said otherwise.
    pub default_namespace: String,
    /// Leave out what is faulty, as a real Mixer does, in place of refusing the whole.
    pub lenient: bool,
    /// What becomes of requests when something fails.
    pub policy: FailurePolicy,
    /// What becomes of fields that another version of the API would read otherwise.
    pub fields: FieldPolicy,
    /// How many answers of checks are kept for requests that would be answered alike; 0 keeps none, as a real Mixer
    /// does since 1.1.
    pub check_cache: u64,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            default_namespace: "istio-system".to_owned(),
            lenient: false,
            policy: FailurePolicy::default(),
            fields: FieldPolicy::default(),
            check_cache: 0,
        }
    }
}

/// What becomes of fields that another version of the API would read otherwise
/// (docs/behaviour/xds.md#versions-of-the-api). A refusal is one of the whole configuration, also where it is read leniently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldPolicy {
    /// Fields that are not known here, in what is received: whoever sent it has a newer API. Fields of files are read by name, and
    /// one that is not known is always an error.
    pub unknown: OnField,
    /// Fields that are deprecated.
    pub deprecated: OnField,
}

/// What becomes of a configuration with such a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnField {
    /// It is used.
    Ignore,
    /// It is used, with a warning.
    #[default]
    Warn,
    /// It is refused.
    Refuse,
}

impl FieldPolicy {
    /// Makes of the faults what the policy says. Says whether one of them refuses the configuration.
    fn judge(self, faults: &mut Vec<Fault>) -> bool {
        let of = |topic| match topic {
            Topic::Configuration => None,
            Topic::UnknownField => Some(self.unknown),
            Topic::DeprecatedField => Some(self.deprecated),
        };
        faults.retain(|fault| of(fault.topic) != Some(OnField::Ignore));
        let mut refused = false;
        for fault in faults.iter_mut().filter(|fault| of(fault.topic) == Some(OnField::Refuse)) {
            fault.severity = Severity::Error;
            refused = true;
        }
        refused
    }
}

/// Configuration that is read, resolved and compiled; its handlers are not open yet.
pub struct Blueprint {
    vocabulary: Arc<Vocabulary>,
    handlers: Vec<Arc<HandlerSpec>>,
    rules: Vec<RuleSpec>,
    faults: Vec<Fault>,
}

impl Blueprint {
    /// Reads a set of resources, of which `faults` are known already. `host` has the adapters of this process, which
    /// `compiledAdapter` names.
    pub fn read(set: &ConfigSet, mut faults: Vec<Fault>, host: &Host) -> Self {
        let vocabulary = Arc::new(schemas::vocabulary(set, &mut faults));
        let templates = schemas::templates(set, &mut faults);
        let adapters = schemas::adapters(set, &templates, &mut faults);
        let handlers = handlers::read(set, &adapters, host, &mut faults);
        let instances = instances::read(set, &templates, &vocabulary, &mut faults);
        let rules = actions::read(set, &handlers, &instances, &vocabulary, &mut faults);
        let is_quota = |name: &ResourceName| instances.get(name).is_some_and(instances::Compiled::is_quota);
        faults.extend(lint(set, is_quota));
        let handlers = handlers::validate(handlers::in_use(handlers, &rules), host, &mut faults);
        Self { vocabulary, handlers, rules, faults }
    }

    /// What is wrong with the configuration.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Opens its handlers, taking over those of the former snapshot that stayed the same, and puts the snapshot together.
    /// The faults are all that were found; unless the options are lenient, an error among them refuses the whole.
    pub async fn build(
        self,
        former: Option<&Snapshot>,
        connect: &dyn Connect,
        options: &BuildOptions,
    ) -> Result<(Snapshot, Vec<Fault>), Vec<Fault>> {
        let mut faults = self.faults;
        let refused = options.fields.judge(&mut faults);
        if refused || (!options.lenient && faults.iter().any(Fault::is_error)) {
            return Err(faults);
        }
        let opened = open::open_all(&self.handlers, former, connect, &mut faults).await;
        let has_faults = faults.iter().any(Fault::is_error);
        if has_faults && !options.lenient {
            return Err(faults);
        }
        let mut snapshot = Snapshot {
            namespace_slots: NamespaceSlots::of(&self.vocabulary),
            global_slots: global_slots(&self.vocabulary),
            vocabulary: self.vocabulary,
            handlers: opened.values().cloned().collect(),
            policy: options.policy,
            cache: (options.check_cache > 0).then(|| CheckCache::new(options.check_cache)),
            has_faults,
            rules: self.rules.len(),
            ..Snapshot::empty()
        };
        assemble::tables(self.rules, &opened, &options.default_namespace, &mut snapshot);
        Ok((snapshot, faults))
    }
}
