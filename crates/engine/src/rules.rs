//! Rules as they are dispatched: by variety and namespace, with everything compiled that can be.

use std::{collections::HashMap, sync::Arc};

use super::{
    attribute::Vocabulary,
    expression::{Expression, Language},
    handler::RuntimeHandler,
    instance::Instance,
    output::Outputs,
};
use crate::proto::istio::mixer::v1::header_operation::Operation as HeaderOperationKind;
use mixer_adapter_core::framework::dynamic::DynamicTemplate;

/// The rules of one variety. CHECK_WITH_OUTPUT counts as CHECK (docs/behaviour/dispatch.md#which-rules-apply).
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Those of the default configuration namespace, which apply to every request.
    pub(crate) default: Rules,
    /// Those of other namespaces, which apply to requests of theirs. Rules of other namespaces cost a request nothing.
    pub(crate) by_namespace: HashMap<Box<str>, Rules>,
}

/// The rules of one namespace and variety.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Equal conditions stand here once, and are evaluated once a request.
    pub(crate) conditions: Vec<Condition>,
    /// In the order of the rules that lead to them.
    pub(crate) destinations: Vec<Destination>,
    /// In the order of their rules.
    pub(crate) operations: Vec<HeaderRule>,
    /// How many entries the groups of all destinations have.
    pub(crate) entries: usize,
    /// The place of each condition, by its language and text.
    pub(crate) condition_places: HashMap<(Language, String), usize>,
    /// The place of each destination, by handler and method.
    pub(crate) destination_places: HashMap<(Arc<str>, String), usize>,
}

#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) text: String,
    /// `None` where it is always true.
    pub(crate) expression: Option<Arc<Expression>>,
}

/// Where instances are sent: a handler, by one template.
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
    /// Which of the rule's actions.
    pub(crate) action: usize,
    pub(crate) condition: usize,
    pub(crate) entries: Vec<Entry>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    /// Its place among all entries of the namespace's rules.
    pub(crate) index: usize,
    pub(crate) instance: Arc<Instance>,
    /// What an attribute generator's answer is made into.
    pub(crate) bindings: Option<Arc<Bindings>>,
}

impl Entry {
    /// The name by which a request asks for a quota.
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
    pub(crate) condition: usize,
    /// The vocabulary with the outputs of the rule's named actions.
    pub(crate) vocabulary: Arc<Vocabulary>,
    /// The entries whose outputs can be read, with their place in that vocabulary.
    pub(crate) outputs: Vec<(usize, Outputs)>,
    pub(crate) request: Vec<HeaderTemplate>,
    pub(crate) response: Vec<HeaderTemplate>,
}

#[derive(Debug)]
pub(crate) struct HeaderTemplate {
    pub(crate) name: String,
    pub(crate) operation: HeaderOperationKind,
    pub(crate) values: Vec<Expression>,
}

impl Table {
    /// The rules that apply to a namespace: those of the default namespace first, then its own.
    pub(crate) fn of(&self, namespace: &str) -> impl Iterator<Item = &Rules> + Clone {
        std::iter::once(&self.default).chain(self.by_namespace.get(namespace))
    }

    /// The rules whose header operations apply to a namespace. One with check rules of its own loses those of the
    /// default namespace, as in a real Mixer (docs/behaviour/dispatch.md#header-operations).
    pub(crate) fn with_operations(&self, namespace: &str) -> (usize, &Rules) {
        match self.by_namespace.get(namespace) {
            Some(own) => (1, own),
            None => (0, &self.default),
        }
    }
}
