//! Compiled rules by template variety and namespace.

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;

use super::{
    attribute::Vocabulary,
    cache::CachePolicy,
    denial::DenialForm,
    expression::Expression,
    handler::RuntimeHandler,
    instance::{Instance, LocalForm},
    output::Outputs,
    resource_counts::{InstanceCounts, RuleCounts},
};
use crate::proto::istio::mixer::v1::header_operation::Operation as HeaderOperationKind;
use mixer_adapter_core::framework::dynamic::DynamicTemplate;

/// The rules of one variety. CHECK_WITH_OUTPUT counts as CHECK (docs/behaviour/dispatch.md#which-rules-apply).
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Rules of the default configuration namespace, which apply to every request.
    pub(crate) default: Arc<Rules>,
    /// Rules of other namespaces, which apply only to requests of that namespace.
    pub(crate) by_namespace: HashMap<Arc<str>, Arc<Rules>, RandomState>,
}

/// The rules of one namespace and variety.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Distinct conditions; each is evaluated once per request.
    pub(crate) conditions: Vec<Condition>,
    /// In the order of their first rules.
    pub(crate) destinations: Vec<Destination>,
    /// In the order of their rules.
    pub(crate) operations: Vec<HeaderRule>,
    /// Number of entries in the groups of all destinations.
    pub(crate) entries: usize,
    /// The first handler that does not answer from memory.
    pub(crate) costly_handler: Option<Arc<str>>,
    /// The first rule whose expired answers may be used while a backend is down.
    pub(crate) stale_rule: Option<Arc<str>>,
    /// Whether a quota has [`dimensions_in_metadata`](crate::QuotaSettings::dimensions_in_metadata).
    pub(crate) has_dimensions_in_metadata: bool,
}

#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) text: Arc<str>,
    /// `None` if it is always true.
    pub(crate) expression: Option<Arc<Expression>>,
}

/// A handler and the template of its calls.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) handler: Arc<RuntimeHandler>,
    pub(crate) template: Arc<DynamicTemplate>,
    pub(crate) groups: Vec<Group>,
}

/// The instances of one action of one rule.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) rule: Arc<str>,
    pub(crate) counts: Arc<RuleCounts>,
    /// Whether evaluations of the rule are counted here: in one group of each rule and table.
    pub(crate) is_counted: bool,
    pub(crate) caching: CachePolicy,
    /// The form of its denials.
    pub(crate) denial: Option<Arc<DenialForm>>,
    /// The index of the action in the rule.
    pub(crate) action: usize,
    pub(crate) condition: usize,
    pub(crate) entries: Vec<Entry>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    /// The index among all entries of [`Rules`].
    pub(crate) index: usize,
    pub(crate) instance: Arc<Instance>,
    /// How the instance is built if the adapter is in this process.
    pub(crate) local: Option<Arc<LocalForm>>,
    pub(crate) counts: Arc<InstanceCounts>,
    /// The bindings of an attribute generator's output.
    pub(crate) bindings: Option<Arc<Bindings>>,
}

impl Entry {
    /// The name of the quota in requests.
    pub(crate) fn short_name(&self) -> &str {
        self.instance.name.split('.').next().unwrap_or_default()
    }
}

/// The attributes that an attribute generator's outputs are bound to.
#[derive(Debug)]
pub(crate) struct Bindings {
    pub(crate) vocabulary: Arc<Vocabulary>,
    pub(crate) outputs: Outputs,
    /// Slot, name and expression of each attribute.
    pub(crate) attributes: Vec<(u32, Arc<str>, Expression)>,
}

/// The header operations of one rule.
#[derive(Debug)]
pub(crate) struct HeaderRule {
    pub(crate) rule: Arc<str>,
    /// The counters of the rule, unless a group of it counts.
    pub(crate) counts: Option<Arc<RuleCounts>>,
    pub(crate) caching: CachePolicy,
    pub(crate) condition: usize,
    /// The vocabulary with the outputs of the rule's named actions.
    pub(crate) vocabulary: Arc<Vocabulary>,
    /// Indices of the entries whose outputs can be read, with their slots in `vocabulary`.
    pub(crate) outputs: Vec<(usize, Outputs)>,
    pub(crate) request: Arc<[HeaderTemplate]>,
    pub(crate) response: Arc<[HeaderTemplate]>,
}

#[derive(Debug)]
pub(crate) struct HeaderTemplate {
    pub(crate) name: String,
    pub(crate) operation: HeaderOperationKind,
    pub(crate) values: Vec<Expression>,
}

impl Table {
    /// Iterates over the rules of all namespaces.
    fn all(&self) -> impl Iterator<Item = &Rules> {
        std::iter::once(&self.default).chain(self.by_namespace.values()).map(|rules| &**rules)
    }

    /// Iterates over the destinations of all rules.
    pub(crate) fn destinations(&self) -> impl Iterator<Item = &Destination> {
        self.all().flat_map(|rules| &rules.destinations)
    }

    /// Iterates over the rules that apply to a namespace: the default namespace's, then its own.
    pub(crate) fn of(&self, namespace: &str) -> impl Iterator<Item = &Rules> + Clone {
        std::iter::once(&self.default).chain(self.by_namespace.get(namespace)).map(|rules| &**rules)
    }

    /// Returns whether any rule applies to a namespace.
    pub(crate) fn has_rules(&self, namespace: &str) -> bool {
        self.of(namespace).any(|rules| !rules.destinations.is_empty())
    }

    /// Returns the rules whose header operations apply to a namespace: its own if it has any, otherwise the default namespace's, as
    /// in Mixer (docs/behaviour/dispatch.md#header-operations).
    pub(crate) fn with_operations(&self, namespace: &str) -> (usize, &Rules) {
        match self.by_namespace.get(namespace) {
            Some(own) => (1, &**own),
            None => (0, &*self.default),
        }
    }
}
