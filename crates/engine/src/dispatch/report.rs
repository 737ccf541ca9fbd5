//! Reports: the instances of all requests of a batch, sent to each destination in one call
//! (docs/behaviour/dispatch.md#what-becomes-one-call).

use std::time::Instant as Clock;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::Instant;

use super::{
    DispatchError, FailureTexts, Request,
    calls::failure_text,
    plan::{Conditions, PlannedCall},
};
use crate::{
    limits::LimitError,
    policy::FailureEffect,
    rules::Destination,
    trace::{Phase, Trace},
};

/// A batch of reports under construction.
#[derive(Debug, Default)]
pub struct Report<'s> {
    batches: Vec<Batch<'s>>,
    failures: FailureTexts,
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
        let failures = planner.failures.into_iter().map(|failure| match failure {
            FailureEffect::Fatal(text) | FailureEffect::Deny(text) => text,
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

    /// Delivers all instances; the error has those that could not be built or were rejected.
    pub async fn flush(
        mut self,
        deadline: Option<Instant>,
        mut trace: Option<&mut Trace>,
    ) -> Result<(), DispatchError> {
        let calls: FuturesUnordered<_> = self
            .batches
            .iter()
            .map(|batch| async move {
                let start = Clock::now();
                let Destination { handler, template, .. } = batch.destination;
                let answer = handler.call(template, &batch.instances, None, deadline).await;
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
