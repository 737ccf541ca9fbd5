//! Reports: the instances of all requests of a batch, sent to each destination in one call
//! (docs/behaviour/dispatch.md#what-becomes-one-call).

use std::{sync::Arc, time::Instant as Clock};

use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::{
    DispatchError, FailureTexts, Request,
    calls::failure_text,
    plan::{Conditions, PlannedCall},
};
use crate::{
    handler::RuntimeHandler,
    limits::LimitError,
    policy::FailureEffect,
    rules::Destination,
    trace::{Phase, Trace},
};
use mixer_adapter_core::framework::dynamic::DynamicTemplate;
use mixer_adapter_host::handler::Caller;

/// A batch of reports under construction.
#[derive(Debug, Default)]
pub struct Report<'s> {
    batches: Vec<Batch<'s>>,
    failures: FailureTexts,
}

/// Instances for one handler by one template.
#[derive(Debug)]
pub struct ReportBatch {
    handler: Arc<RuntimeHandler>,
    template: Arc<DynamicTemplate>,
    instances: Vec<Vec<u8>>,
}

impl ReportBatch {
    /// The full name of the handler.
    pub fn handler(&self) -> &Arc<str> {
        &self.handler.name
    }

    /// Number of instances.
    pub fn len(&self) -> usize {
        self.instances.len()
    }

    /// Returns whether there are no instances.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// The size of the instances in bytes.
    pub fn size(&self) -> usize {
        self.instances.iter().map(Vec::len).sum()
    }

    /// Adds the instances of a later batch for the same handler and template; returns one for another.
    pub fn merge(&mut self, later: ReportBatch) -> Option<ReportBatch> {
        if !Arc::ptr_eq(&self.handler, &later.handler) || !Arc::ptr_eq(&self.template, &later.template) {
            return Some(later);
        }
        self.instances.extend(later.instances);
        None
    }

    /// Delivers the instances.
    ///
    /// # Errors
    /// The handler rejects them or does not answer.
    pub async fn send(&self, caller: &Caller) -> Result<(), DispatchError> {
        let answer = self.handler.call(&self.template, &self.instances, &[], None, caller).await;
        match answer {
            Ok(_) => Ok(()),
            Err(status) => Err(FailureTexts::from_iter([failure_text(&self.handler.name, &status)]).into()),
        }
    }
}

#[derive(Debug)]
struct Batch<'s> {
    destination: &'s Destination,
    names: Vec<&'s str>,
    instances: Vec<Vec<u8>>,
}

impl<'s> Report<'s> {
    /// Records a failure that prevents delivery of part of the batch.
    pub fn fail(&mut self, failure: String) {
        self.failures.push(failure);
    }

    /// Adds the instances of one request. One that cannot be built is dropped, and the batch fails in the end.
    ///
    /// # Errors
    /// The instances exceed the limits of the call.
    pub async fn add(&mut self, request: &mut Request<'s>) -> Result<(), LimitError> {
        match request.generate().await {
            Ok(()) => {}
            Err(DispatchError::Failed { failures, .. }) => {
                self.failures.append(failures);
                return Ok(());
            }
            Err(DispatchError::Limit(error)) => return Err(error),
        }
        let mut conditions = Conditions::of(request.snapshot.reports.of(&request.namespace));
        let mut planner = request.planner(false);
        for conditions in &mut conditions {
            planner.plan(Phase::Report, conditions, |_, _| true, |planned| self.buffer(planned))?;
        }
        let failures = planner.failures.into_iter().filter_map(|failure| match failure {
            FailureEffect::Fatal(text) | FailureEffect::Deny(text) => Some(text),
            FailureEffect::Ignore => None,
        });
        self.failures.extend(failures);
        Ok(())
    }

    fn buffer(&mut self, planned: PlannedCall<'s>) {
        let destination = planned.destination;
        let index = self.batches.iter().position(|batch| std::ptr::eq(batch.destination, destination));
        let batch = match index {
            Some(index) => &mut self.batches[index],
            None => {
                self.batches.push(Batch { destination, names: Vec::new(), instances: Vec::new() });
                let last = self.batches.len() - 1;
                &mut self.batches[last]
            }
        };
        batch.names.push(&planned.entry.instance.name);
        batch.instances.push(planned.instance);
    }

    /// Returns the instances for each handler and template, to be sent later, and the failures so far.
    pub fn into_batches(self) -> (Vec<ReportBatch>, FailureTexts) {
        let batches = self.batches.into_iter().map(|batch| ReportBatch {
            handler: batch.destination.handler.clone(),
            template: batch.destination.template.clone(),
            instances: batch.instances,
        });
        (batches.collect(), self.failures)
    }

    /// Delivers all instances; the error has those that could not be built or were rejected.
    pub async fn flush(
        mut self,
        caller: &Caller,
        mut trace: Option<&mut Trace>,
    ) -> Result<(), DispatchError> {
        let calls: FuturesUnordered<_> = self
            .batches
            .iter()
            .map(|batch| async move {
                let start = Clock::now();
                let Destination { handler, template, .. } = batch.destination;
                let answer = handler.call(template, &batch.instances, &batch.names, None, caller).await;
                (batch, answer, start.elapsed())
            })
            .collect();
        let answers: Vec<_> = calls.collect().await;
        for (batch, answer, took) in answers {
            let Destination { handler, template, .. } = batch.destination;
            if let Some(trace) = trace.as_deref_mut() {
                let names = batch.names.iter().map(|name| (*name).to_owned()).collect();
                let outcome = answer.as_ref().map(|_| serde_json::Value::Object(Default::default()));
                trace.call(&handler.name, template.name(), names, outcome, took);
            }
            if let Err(status) = answer {
                self.failures.push(failure_text(&handler.name, &status));
            }
        }
        match self.failures.is_empty() {
            true => Ok(()),
            false => Err(self.failures.into()),
        }
    }
}
