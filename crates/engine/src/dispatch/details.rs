//! The origin of an answer: rules, outputs and dimensions of quotas.

use std::sync::Arc;

use prost::Message as _;

use super::{
    FailureTexts, Request,
    plan::{Conditions, PlannedCall},
};
use crate::{
    answer::{AnswerDetails, QuotaDimensions},
    attribute::Bag,
    limits::LimitError,
    rules::HeaderRule,
    trace::Phase,
};
use mixer_adapter_templates::quota;

impl AnswerDetails {
    pub(super) fn of_denial(mut rules: Vec<Arc<str>>, failures: FailureTexts) -> Self {
        rules.sort_unstable();
        rules.dedup();
        Self { rules, failures, ..Self::default() }
    }

    pub(super) fn add_rule(&mut self, rule: &Arc<str>) {
        if !self.rules.contains(rule) {
            self.rules.push(rule.clone());
        }
    }

    /// Adds the outputs of a rule's named actions; those of the second of two rules with the same name are omitted.
    pub(super) fn add_outputs(&mut self, rule: &HeaderRule, outputs: &Bag) {
        for slot in rule.outputs.iter().flat_map(|(_, declared)| declared.slots()) {
            if let Some(declared) = rule.vocabulary.at(slot)
                && let Some(value) = outputs.at(slot)
                && !self.outputs.iter().any(|(name, _)| **name == **declared.name)
            {
                self.outputs.push((declared.name.to_string(), value.to_string()));
            }
        }
    }
}

impl Request<'_> {
    /// Returns the dimensions of the quotas that apply, of those whose settings ask for them. One that cannot be evaluated has none:
    /// Envoy makes no descriptor without them.
    pub(super) fn quota_dimensions(&mut self) -> Result<Vec<QuotaDimensions>, LimitError> {
        let snapshot = self.snapshot;
        if !snapshot.has_dimensions_in_metadata {
            return Ok(Vec::new());
        }
        let mut planned: Vec<PlannedCall<'_>> = Vec::new();
        let mut conditions = Conditions::of(snapshot.quotas.of(&self.namespace));
        let mut planner = self.planner(false);
        for conditions in &mut conditions {
            let wanted = |entry: &crate::rules::Entry, _| entry.instance.quota.dimensions_in_metadata;
            planner.plan(Phase::Quota, conditions, wanted, |call| planned.push(call))?;
        }
        let dimensions = planned.iter().filter_map(|call| {
            let instance = quota::InstanceMsg::decode(&*call.instance).ok()?;
            let values = instance.dimensions.into_iter().map(|(name, value)| (name, value.to_string()));
            Some(QuotaDimensions { quota: call.entry.short_name().to_owned(), values: values.collect() })
        });
        Ok(dimensions.collect())
    }
}
