//! Reports: the instances of all requests of a batch, sent to each destination in one call
//! (docs/behaviour/dispatch.md#what-becomes-one-call).

use std::{collections::BTreeMap, sync::Arc};

use futures_util::stream::{FuturesUnordered, StreamExt as _};

use tonic::Code;

use super::{
    DispatchError, FailureTexts, Request,
    calls::{code_of, failure_text},
    evaluator::PlannedCall,
};
use crate::{
    failed_part::{FailedParts, FailureCause},
    handler::RuntimeHandler,
    limits::LimitError,
    policy::FailureEffect,
    resource_counts::RuleCounts,
    rules::{Destination, Group},
    trace::{Phase, Step, Trace},
};
use mixer_adapter_core::framework::dynamic::DynamicTemplate;
use mixer_adapter_host::handler::{BuiltInstance, Caller};

/// A batch of reports under construction.
#[derive(Debug, Default)]
pub struct Report<'s> {
    batches: Vec<Batch<'s>>,
    failures: FailureTexts,
    failed: FailedParts,
    lost: LostInstances,
}

/// The number of instances that could not be built, by the full names of their handlers.
///
/// Under the empty name, requests without instances, because their attributes could not be generated or exceeded a limit.
pub type LostInstances = BTreeMap<Arc<str>, usize>;

/// A report whose calls are made later.
#[derive(Debug)]
pub struct PreparedReport {
    /// The instances for each handler and template.
    pub batches: Vec<ReportBatch>,
    /// Why parts of the report are not in `batches`.
    pub failures: FailureTexts,
    /// The number of those parts.
    pub lost: LostInstances,
}

/// Instances for one handler by one template.
#[derive(Debug)]
pub struct ReportBatch {
    handler: Arc<RuntimeHandler>,
    template: Arc<DynamicTemplate>,
    instances: Vec<BuiltInstance>,
    /// The full name of each instance, and the counters of its rule.
    origins: Vec<(Arc<str>, Arc<RuleCounts>)>,
}

impl ReportBatch {
    /// The full name of the handler.
    pub fn handler(&self) -> &Arc<str> {
        &self.handler.name
    }

    /// Number of instances.
    pub fn len(&self) -> usize {
        self.origins.len()
    }

    /// Returns whether there are no instances.
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    /// The memory of the instances in bytes.
    pub fn size(&self) -> usize {
        let instances = self.instances.iter();
        let origin = size_of::<(Arc<str>, Arc<RuleCounts>)>();
        instances.map(|instance| size_of::<BuiltInstance>() + origin + instance.size()).sum()
    }

    /// Splits the batch into batches of at most `max` instances.
    pub fn split(self, max: usize) -> impl Iterator<Item = Self> {
        let Self { handler, template, instances, origins } = self;
        let (mut instances, mut origins) = (instances.into_iter(), origins.into_iter());
        std::iter::from_fn(move || {
            let instances: Vec<_> = instances.by_ref().take(max).collect();
            let origins = origins.by_ref().take(max).collect();
            let (handler, template) = (handler.clone(), template.clone());
            (!instances.is_empty()).then_some(Self { handler, template, instances, origins })
        })
    }

    /// Adds the instances of a later batch for the same handler and template. Returns `later` if its handler or template differs, or
    /// if there would be more than `max` instances.
    pub fn merge(&mut self, later: Self, max: usize) -> Option<Self> {
        let is_same =
            Arc::ptr_eq(&self.handler, &later.handler) && Arc::ptr_eq(&self.template, &later.template);
        if !is_same || self.len() + later.len() > max {
            return Some(later);
        }
        self.instances.extend(later.instances);
        self.origins.extend(later.origins);
        None
    }

    /// Delivers the instances, once.
    ///
    /// # Errors
    /// The handler rejects them or does not answer.
    pub async fn send(&mut self, caller: &Caller) -> Result<(), DispatchError> {
        let names: Vec<&str> = self.origins.iter().map(|(name, _)| &**name).collect();
        let (answer, took) =
            self.handler.call(&self.template, &mut self.instances, &names, None, caller).await;
        let code = code_of(&answer);
        let rules = self.origins.iter().map(|(_, rule)| rule);
        RuleCounts::record_report(rules, &self.handler.name, code, took);
        answer
            .map(drop)
            .map_err(|status| FailureTexts::from_iter([failure_text(&self.handler.name, &status)]).into())
    }
}

#[derive(Debug)]
struct Batch<'s> {
    destination: &'s Destination,
    names: Vec<&'s Arc<str>>,
    instances: Vec<BuiltInstance>,
    /// The group of each instance.
    groups: Vec<&'s Group>,
}

impl<'s> Report<'s> {
    /// Records a failure that prevents delivery of part of the batch.
    pub fn fail(&mut self, failure: String) {
        self.failures.push(failure);
    }

    /// Adds the instances of one request. If an instance cannot be built, it is dropped, and the batch fails in the end.
    ///
    /// # Errors
    /// The instances exceed the limits of the call.
    pub async fn add(&mut self, request: &mut Request<'s>) -> Result<(), LimitError> {
        let added = self.try_add(request).await;
        self.failed.append(&request.take_failed());
        if !matches!(added, Ok(true)) {
            *self.lost.entry(Arc::default()).or_default() += 1;
        }
        added.map(|_| ())
    }

    /// Returns whether the attributes of the request could be generated.
    async fn try_add(&mut self, request: &mut Request<'s>) -> Result<bool, LimitError> {
        let mut evaluator = match request.begin(Phase::Report).await {
            Ok(evaluator) => evaluator,
            Err(DispatchError::Failed { failures, .. }) => {
                self.failures.append(failures);
                return Ok(false);
            }
            Err(DispatchError::Limit(error)) => return Err(error),
        };
        let plan = evaluator.plan(&evaluator.context.snapshot.reports, |_, _| true)?;
        plan.calls.into_iter().for_each(|planned| self.buffer(planned));
        self.failures.extend(evaluator.failures.into_iter().filter_map(FailureEffect::into_text));
        for handler in plan.unbuilt {
            *self.lost.entry(handler).or_default() += 1;
        }
        Ok(true)
    }

    fn buffer(&mut self, planned: PlannedCall<'s>) {
        let destination = planned.destination;
        let index = self.batches.iter().position(|batch| std::ptr::eq(batch.destination, destination));
        let index = index.unwrap_or_else(|| {
            let (names, instances, groups) = (Vec::new(), Vec::new(), Vec::new());
            self.batches.push(Batch { destination, names, instances, groups });
            self.batches.len() - 1
        });
        let batch = &mut self.batches[index];
        batch.names.push(&planned.entry.instance.name);
        batch.instances.push(planned.instance);
        batch.groups.push(planned.group);
    }

    /// The parts that failed so far.
    pub fn failed_parts(&self) -> &FailedParts {
        &self.failed
    }

    /// Returns the instances for each handler and template, to be sent later, and the lost parts.
    pub fn prepare(self) -> PreparedReport {
        let batches = self.batches.into_iter().map(|batch| ReportBatch {
            handler: batch.destination.handler.clone(),
            template: batch.destination.template.clone(),
            instances: batch.instances,
            origins: std::iter::zip(batch.names, batch.groups)
                .map(|(name, group)| (name.clone(), group.counts.clone()))
                .collect(),
        });
        PreparedReport { batches: batches.collect(), failures: self.failures, lost: self.lost }
    }

    /// Delivers all instances. The error names instances that could not be built or were rejected.
    pub async fn flush(
        &mut self,
        caller: &Caller,
        mut trace: Option<&mut Trace>,
    ) -> Result<(), DispatchError> {
        let calls: FuturesUnordered<_> = self
            .batches
            .iter_mut()
            .map(|batch| async move {
                let Destination { handler, template, .. } = batch.destination;
                let names: Vec<&str> = batch.names.iter().map(|name| &***name).collect();
                let (answer, took) = handler.call(template, &mut batch.instances, &names, None, caller).await;
                (batch, answer, took)
            })
            .collect();
        let answers: Vec<_> = calls.collect().await;
        for (batch, answer, took) in answers {
            let Destination { handler, template, .. } = batch.destination;
            if let Some(trace) = trace.as_deref_mut() {
                let names = batch.names.iter().map(ToString::to_string).collect();
                let outcome = answer.as_ref().map(|_| serde_json::Value::Object(Default::default()));
                trace.add(|| Step::call(&handler.name, template.name(), names, outcome, took));
            }
            let code = code_of(&answer);
            let rules = batch.groups.iter().map(|group| &group.counts);
            RuleCounts::record_report(rules, &handler.name, code, took);
            for group in batch.groups.iter().filter(|_| code != Code::Ok) {
                self.failed.add(&group.rule, Some(&handler.name), FailureCause::Call(code));
            }
            if let Err(status) = answer {
                self.failures.push(failure_text(&handler.name, &status));
            }
        }
        if self.failures.is_empty() { Ok(()) } else { Err(std::mem::take(&mut self.failures).into()) }
    }
}
