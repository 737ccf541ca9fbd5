//! Attribute generation, which precedes every other phase (docs/behaviour/dispatch.md#attribute-generation).

use std::sync::Arc;

use super::{
    DispatchError, FailureTexts, Request,
    calls::{CompletedCall, call_all, failure_text},
    plan::{Conditions, PlannedCall},
};
use crate::{
    attribute::{AttributeValue, Bag, Reads, Vocabulary},
    expression::EvalError,
    policy::{FailureEffect, fatal},
    rules::Bindings,
    trace::{Phase, Step, cut},
};
use mixer_adapter_core::value::ValueType;

/// A generator without a result.
#[derive(Debug, thiserror::Error)]
enum GenerateError {
    #[error("{0}")]
    Call(String),
    #[error("{handler}: the answer cannot be decoded: {error}")]
    Decode { handler: String, error: prost::DecodeError },
    #[error("{instance}: binding of attribute {attribute}: {error}")]
    Binding { instance: Arc<str>, attribute: Arc<str>, error: EvalError },
}

impl<'s> Request<'s> {
    /// Runs the attribute generators. Attributes of the request are not overwritten, and the first generator to
    /// respond wins.
    pub async fn generate(&mut self) -> Result<(), DispatchError> {
        let snapshot = self.snapshot;
        if snapshot.generators.of(&self.namespace).all(|rules| rules.destinations.is_empty()) {
            self.generated = true;
            return Ok(());
        }
        let mut planned: Vec<PlannedCall<'s>> = Vec::new();
        let mut conditions = Conditions::of(snapshot.generators.of(&self.namespace));
        let mut planner = self.planner(true);
        for conditions in &mut conditions {
            planner.plan(Phase::Generate, conditions, |_, _| true, |call| planned.push(call))?;
        }
        // This phase cannot deny a request, so a closed failure policy is fatal here.
        let effects = planner.failures;
        let mut failures = fatal(&effects);
        for effect in effects {
            match effect {
                FailureEffect::Deny(text) => failures.push(text),
                FailureEffect::Ignore => self.has_ignored_failure = true,
                FailureEffect::Fatal(_) => {}
            }
        }
        let mut generated: Vec<(u32, Arc<str>, AttributeValue)> = Vec::new();
        self.evaluation.add_calls(planned.len());
        for answered in call_all(planned, None, &self.caller).await {
            if let Err(status) = &answered.answer {
                self.evaluation.call_failed(status.code());
                self.add_failure_details(status);
            }
            if let Err(failure) = self.bind(&answered, &mut generated) {
                failures.push(failure.to_string());
            }
        }
        if !failures.is_empty() {
            let details = std::mem::take(&mut self.failure_details);
            return Err(DispatchError::from(FailureTexts::from_iter(failures)).with_details(details));
        }
        self.generated = true;
        for (slot, attribute, value) in generated {
            let fresh = self.bag.at(slot).is_none();
            if let Some(trace) = &mut self.trace {
                trace.add(|| Step::Generated {
                    attribute: attribute.to_string(),
                    value: fresh.then(|| cut(&value.to_string()).into_owned()),
                });
            }
            if fresh {
                self.bag.set(slot, value);
                self.references.generated.push(slot);
            }
        }
        // Generators were selected by the namespace of the request; from here on a generated one applies.
        if !self.references.generated.is_empty() {
            self.namespace =
                snapshot.namespace_slots.namespace(&self.bag, &mut self.references.after).to_owned();
        }
        Ok(())
    }

    /// Evaluates the bindings of a generator with its output.
    fn bind(
        &mut self,
        answered: &CompletedCall<'s>,
        generated: &mut Vec<(u32, Arc<str>, AttributeValue)>,
    ) -> Result<(), GenerateError> {
        let outcome = answered.answer.as_ref().map(|answer| {
            || {
                let output = answered.planned.destination.template.output();
                output.map_or(serde_json::Value::Null, |output| crate::trace_json(output, answer))
            }
        });
        answered.trace(self.trace.as_deref_mut(), outcome);
        let handler = answered.handler();
        let call_failed = |status| GenerateError::Call(failure_text(handler, status));
        let answer = answered.answer.as_ref().map_err(call_failed)?;
        let Some(bindings) = &answered.planned.entry.bindings else { return Ok(()) };
        let Bindings { vocabulary, outputs, attributes } = &**bindings;
        let mut extra = Bag::new(vocabulary.clone());
        outputs
            .read(answer, &mut extra)
            .map_err(|error| GenerateError::Decode { handler: handler.to_owned(), error })?;
        for (slot, attribute, expression) in attributes {
            let mut reads = Reads::default();
            let value = expression.eval(self.bag.with(&extra), &mut reads).map(AttributeValue::from);
            self.merge_reads(&reads, vocabulary, true);
            let value = value.map_err(|error| GenerateError::Binding {
                instance: answered.planned.entry.instance.name.clone(),
                attribute: attribute.clone(),
                error,
            })?;
            generated.push((*slot, attribute.clone(), value));
        }
        Ok(())
    }

    /// Merges reads of an extending vocabulary into those of the request.
    pub(super) fn merge_reads(&mut self, reads: &Reads, extended: &Vocabulary, before: bool) {
        let base = self.bag.vocabulary().clone();
        // A map of which no key was read.
        let is_whole_map = |name: &str| {
            extended.find(name).is_some_and(|declared| declared.value_type == ValueType::StringMap)
                && !reads.all(extended).any(|other| other.name == name && other.key.is_some())
        };
        for reference in reads.all(extended) {
            let target = if before { &mut self.references.before } else { &mut self.references.after };
            match base.find(reference.name) {
                Some(declared) => match reference.key {
                    None => {
                        target.record(declared.slot, self.bag.at(declared.slot));
                        if reference.present && !reads.whole_maps().any(|slot| slot == declared.slot) {
                            target.record_by_key(declared.slot);
                        }
                    }
                    Some(key) => target.record_key(declared.slot, key, reference.present, || key.into()),
                },
                None if reference.key.is_none() && (!reference.present || is_whole_map(reference.name)) => {
                    self.references.absent_outputs.push(reference.name.into());
                }
                None => {}
            }
        }
    }
}
