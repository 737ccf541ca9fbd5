//! Attribute generation, which precedes every other phase (docs/behaviour/dispatch.md#attribute-generation).

use std::sync::Arc;

use super::{
    DispatchError,
    calls::{CompletedCall, failure_text, for_each_call},
    evaluator::Evaluator,
};
use crate::{
    attribute::{AttributeValue, Bag},
    expression::EvalError,
    policy::{FailureEffect, fatal},
    rules::Bindings,
};
use mixer_adapter_core::{framework::status::limit_details, proto::Any, template::Response};
use mixer_adapter_host::handler::details_of;

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

/// An attribute from a generator.
pub(super) struct GeneratedAttribute {
    pub(super) slot: u32,
    pub(super) attribute: Arc<str>,
    pub(super) value: AttributeValue,
}

impl<'s> Evaluator<'_, 's> {
    /// Runs the attribute generators. Their attributes are in the order of the responses, because the first to respond wins.
    pub(super) async fn generate(mut self) -> Result<Vec<GeneratedAttribute>, DispatchError> {
        let plan = self.plan(&self.context.snapshot.generators, |_, _| true)?;
        // This phase cannot deny a request, so a closed failure policy is fatal here.
        let mut failures = fatal(&self.failures);
        for effect in std::mem::take(&mut self.failures) {
            match effect {
                FailureEffect::Deny(text) => failures.push(text),
                FailureEffect::Ignore => self.evaluation.has_ignored_failure = true,
                FailureEffect::Fatal(_) => {}
            }
        }
        let mut details: Vec<Any> = Vec::new();
        let mut generated = Vec::new();
        self.add_calls(&plan);
        let mut answered = Vec::with_capacity(plan.calls.len());
        for_each_call(plan.calls, None, self.context.caller, |call| {
            answered.push(call);
            None
        })
        .await;
        for call in &mut answered {
            if let Err(status) = &call.answer {
                self.call_failed(call, status);
                details.extend(details_of(status));
                self.record.counts.omitted_details += limit_details(&mut details);
            }
            if let Err(failure) = self.bind(call, &mut generated) {
                failures.push(failure.to_string());
            }
        }
        if failures.is_empty() {
            return Ok(generated);
        }
        Err(DispatchError::from(failures).with_details(details))
    }

    /// Evaluates the bindings of a generator with its output.
    fn bind(
        &mut self,
        call: &mut CompletedCall<'s>,
        generated: &mut Vec<GeneratedAttribute>,
    ) -> Result<(), GenerateError> {
        let answer = call.take_answer().map(Response::into_encoded);
        self.record.trace(|| {
            let output = call.planned.destination.template.output();
            call.step(answer.as_ref().map(|answer| {
                output.map_or(serde_json::Value::Null, |output| crate::trace_json(output, answer))
            }))
        });
        let handler = call.handler();
        let answer = answer.map_err(|status| GenerateError::Call(failure_text(handler, &status)))?;
        let Some(bindings) = &call.planned.entry.bindings else { return Ok(()) };
        let Bindings { vocabulary, outputs, attributes } = &**bindings;
        let mut extra = Bag::new(vocabulary.clone());
        outputs
            .read(&answer, &mut extra)
            .map_err(|error| GenerateError::Decode { handler: handler.to_owned(), error })?;
        for (slot, attribute, expression) in attributes {
            let (slot, attribute) = (*slot, attribute.clone());
            match self.eval_with(expression, &extra).map(AttributeValue::from) {
                Ok(value) => generated.push(GeneratedAttribute { slot, attribute, value }),
                Err(error) => {
                    let instance = call.planned.entry.instance.name.clone();
                    return Err(GenerateError::Binding { instance, attribute, error });
                }
            }
        }
        Ok(())
    }
}
