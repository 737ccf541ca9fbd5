//! The origin of an answer: rules, outputs and dimensions of quotas.

use std::sync::Arc;

use super::{FailureTexts, evaluator::Evaluator};
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

    /// Adds the outputs of a rule's named actions. An output of a name that is present is omitted.
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

impl Evaluator<'_, '_> {
    /// Returns the dimensions of the quotas that apply and whose settings ask for them. A quota whose dimensions cannot be evaluated
    /// has none: Envoy makes no descriptor without them.
    pub(super) fn quota_dimensions(&mut self) -> Result<Vec<QuotaDimensions>, LimitError> {
        let snapshot = self.context.snapshot;
        if !snapshot.quotas.of(self.namespace).any(|rules| rules.has_dimensions_in_metadata) {
            return Ok(Vec::new());
        }
        self.phase = Phase::Quota;
        let plan = self.plan(&snapshot.quotas, |entry, _| entry.instance.quota.dimensions_in_metadata)?;
        let dimensions = plan.calls.into_iter().filter_map(|mut call| {
            let instance = call.instance.take::<quota::InstanceMsg>().ok()?;
            let values = instance.dimensions.into_iter().map(|(name, value)| (name, value.to_string()));
            Some(QuotaDimensions { quota: call.entry.short_name().to_owned(), values: values.collect() })
        });
        Ok(dimensions.collect())
    }
}
