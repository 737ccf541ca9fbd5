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
    pub(super) name: ResourceName,
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
