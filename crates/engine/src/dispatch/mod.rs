//! Dispatches requests: from attributes to calls of handlers to a merged answer (docs/behaviour/dispatch.md).

mod allocation;
mod cached;
mod calls;
mod check;
mod details;
mod evaluation;
mod failure_texts;
mod generate;
mod headers;
mod merge;
mod plan;
mod quota;
mod report;
mod taken;

pub use super::{
    answer::{AnswerDetails, CheckAnswer, QuotaDimensions},
    policy::{FailurePolicy, OnFailure, OnUnknownQuota},
};
pub use allocation::{Allocation, AllocationMode, QuotaAnswer, QuotaGrant, QuotaRequest};
pub use cached::CacheUse;
pub use failure_texts::FailureTexts;
pub use mixer_adapter_host::handler::Caller;
pub use report::{LostInstances, PreparedReport, Report, ReportBatch};
pub use taken::{ReturnedAmount, TakenAmount};

use std::sync::Arc;

use evaluation::Evaluation;
use mixer_adapter_core::proto::Any;

use super::{
    attribute::{Bag, Vocabulary},
    limits::{Budget, LimitError},
    references::References,
    rules::Table,
    snapshot::Snapshot,
    trace::{Step, Trace},
};

/// A request during its phases.
#[derive(Debug)]
pub struct Request<'s> {
    pub(crate) snapshot: &'s Snapshot,
    /// The attributes of the request and generated ones.
    pub(crate) bag: Bag,
    pub(crate) references: References,
    /// The references of an answer from the cache, in place of those.
    reused_references: Option<Arc<References>>,
    pub(crate) namespace: String,
    pub(crate) caller: Caller,
    /// Whether attribute generators have run.
    pub(crate) generated: bool,
    pub(crate) trace: Option<Box<Trace>>,
    pub(crate) policy: FailurePolicy,
    pub(crate) is_strict: bool,
    /// Whether the details of answers name the rules that decided.
    pub(crate) names_rules: bool,
    condition_errors: u64,
    /// The details of failed calls.
    failure_details: Vec<Any>,
    /// Number of details of statuses that exceed the limit.
    omitted_details: u64,
    /// Whether a failure was ignored, as the policy wants it.
    pub(crate) has_ignored_failure: bool,
    unknown_quotas: u64,
    budget: Budget,
    evaluation: Evaluation,
    cache_use: Option<CacheUse>,
}

/// A request that cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    /// Parts of it failed. The Mixer API returns INTERNAL for a check and UNKNOWN for a report.
    #[error("{}{failures}", .phase.map_or_else(String::new, |phase| format!("{phase}: ")))]
    Failed {
        /// The phase in which they failed.
        phase: Option<&'static str>,
        /// The failures.
        failures: FailureTexts,
        /// The details of the errors of adapters.
        details: Vec<Any>,
    },
    /// It exceeds a limit. The Mixer API returns RESOURCE_EXHAUSTED.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl DispatchError {
    /// Adds the phase in which it occurred.
    fn within(self, phase: &'static str) -> Self {
        match self {
            Self::Failed { failures, details, .. } => Self::Failed { phase: Some(phase), failures, details },
            Self::Limit(_) => self,
        }
    }

    /// Adds the details of errors of adapters.
    fn with_details(self, details: Vec<Any>) -> Self {
        match self {
            Self::Failed { phase, failures, .. } => Self::Failed { phase, failures, details },
            Self::Limit(_) => self,
        }
    }
}

impl From<FailureTexts> for DispatchError {
    fn from(failures: FailureTexts) -> Self {
        Self::Failed { phase: None, failures, details: Vec::new() }
    }
}

/// Maximum number of rules of other namespaces in a trace.
const MAX_OTHERS: usize = 20;

/// Adds the rules that do not apply to requests of a namespace.
fn add_other_namespaces(trace: &mut Trace, snapshot: &Snapshot, namespace: &str) {
    let others = snapshot
        .places
        .iter()
        .filter(|(_, place)| place.namespace.as_deref().is_some_and(|of_rule| of_rule != namespace));
    for (rule, place) in others.take(MAX_OTHERS) {
        trace.add(|| Step::OtherNamespace { rule: rule.to_string(), place: place.place.to_string() });
    }
}

impl<'s> Request<'s> {
    /// Creates a request with attributes of the snapshot's vocabulary. Its calls have the deadline of `caller`, and its name in logs.
    pub fn new(snapshot: &'s Snapshot, bag: Bag, caller: Caller) -> Self {
        let mut references = References::default();
        let namespace = snapshot.namespace_slots.namespace(&bag, &mut references.before).to_owned();
        let (generated, policy) = (false, snapshot.policy);
        Self {
            snapshot,
            bag,
            references,
            reused_references: None,
            namespace,
            caller,
            generated,
            trace: None,
            policy,
            is_strict: false,
            names_rules: false,
            condition_errors: 0,
            failure_details: Vec::new(),
            omitted_details: 0,
            has_ignored_failure: false,
            unknown_quotas: 0,
            budget: Budget::default(),
            evaluation: Evaluation::default(),
            cache_use: None,
        }
    }

    /// Adds the steps of the request to a trace.
    #[must_use]
    pub fn with_trace(self, mut trace: Trace) -> Self {
        add_other_namespaces(&mut trace, self.snapshot, &self.namespace);
        Self { trace: Some(Box::new(trace)), ..self }
    }

    /// Makes failures that Mixer ignores fail the request; see [`FailurePolicy::strict`].
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.policy = self.policy.strict();
        (self.is_strict, self.names_rules) = (true, true);
        self
    }

    /// Makes the details of answers name the rules that decided, as those of strict requests do.
    #[must_use]
    pub fn with_rules(self, names_rules: bool) -> Self {
        Self { names_rules: names_rules || self.is_strict, ..self }
    }

    /// Sets the budget, which otherwise is that of the default limits.
    #[must_use]
    pub fn with_budget(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// The budget, for further requests of the same call.
    pub fn budget(&self) -> Budget {
        self.budget.clone().next_request()
    }

    /// The references of the answers so far.
    pub fn references(&self) -> &References {
        self.reused_references.as_deref().unwrap_or(&self.references)
    }

    /// The declared attributes.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.snapshot.vocabulary
    }

    /// The attributes, including generated ones.
    pub fn attributes(&self) -> &Bag {
        &self.bag
    }

    /// The namespace whose rules apply in addition to those of the default one; empty if it has none.
    pub fn tenant(&self) -> &str {
        let Snapshot { checks, reports, quotas, generators, .. } = self.snapshot;
        let has_rules = |table: &Table| table.by_namespace.contains_key(self.namespace.as_str());
        if [checks, reports, quotas, generators].into_iter().any(has_rules) { &self.namespace } else { "" }
    }

    /// The namespace whose rules apply in addition to those of the default one.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Number of conditions that could not be evaluated.
    pub fn condition_errors(&self) -> u64 {
        self.condition_errors
    }

    /// Number of details of denials and errors that were omitted from the answer, because it would be too large with them.
    pub fn omitted_details(&self) -> u64 {
        self.omitted_details
    }

    /// How the cache was used for the answer; `None` without a cache.
    pub fn cache_use(&self) -> Option<&CacheUse> {
        self.cache_use.as_ref()
    }

    /// Number of quota requests for which no rule has a quota.
    pub fn unknown_quotas(&self) -> u64 {
        self.unknown_quotas
    }

    /// Takes the trace, if there is one.
    pub fn into_trace(self) -> Option<Trace> {
        self.trace.map(|trace| *trace)
    }
}
