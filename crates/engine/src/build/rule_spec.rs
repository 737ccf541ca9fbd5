//! Rules whose references are resolved and whose expressions are compiled.

use std::sync::Arc;

use super::instances::InstanceSpec;
use crate::{
    attribute::Vocabulary,
    cache::CachePolicy,
    denial::DenialForm,
    expression::{Expression, Language},
    output::Outputs,
    rules::HeaderTemplate,
    snapshot::RulePlace,
};
use mixer_adapter_config::ResourceName;

/// A parsed and resolved rule.
#[derive(Clone, Debug)]
pub(super) struct RuleSpec {
    pub(super) full_name: Arc<str>,
    pub(super) place: Arc<RulePlace>,
    pub(super) language: Language,
    pub(super) caching: CachePolicy,
    pub(super) denial: Option<Arc<DenialForm>>,
    /// The source of the condition without surrounding white space.
    pub(super) condition: Arc<str>,
    /// `None` if it always matches.
    pub(super) expression: Option<Arc<Expression>>,
    pub(super) actions: Vec<ActionSpec>,
    pub(super) headers: Option<HeaderSpec>,
}

impl RuleSpec {
    /// Iterates over the slots of all attributes that the rule reads or sets.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        let headers = self.headers.iter();
        let values = headers
            .flat_map(|headers| headers.request.iter().chain(&*headers.response))
            .flat_map(|template| &template.values);
        let denial = self.denial.iter().flat_map(|form| form.slots.iter().copied());
        let instances = self.actions.iter().flat_map(|action| &action.instances);
        let expressions = self.expression.as_deref().into_iter().chain(values);
        expressions.flat_map(Expression::slots).chain(denial).chain(instances.flat_map(InstanceSpec::slots))
    }
}

#[derive(Clone, Debug)]
pub(super) struct ActionSpec {
    /// The name for references of header operations to the action's outputs.
    pub(super) name: String,
    pub(super) handler: ResourceName,
    pub(super) instances: Vec<InstanceSpec>,
}

#[derive(Clone, Debug)]
pub(super) struct HeaderSpec {
    pub(super) vocabulary: Arc<Vocabulary>,
    /// The action and instance whose output is read, and its index in the vocabulary.
    pub(super) outputs: Vec<(usize, usize, Outputs)>,
    pub(super) request: Arc<[HeaderTemplate]>,
    pub(super) response: Arc<[HeaderTemplate]>,
}
