//! From a request's attributes to the calls of handlers, and from their answers to one (docs/behaviour/dispatch.md).

mod calls;
mod check;
mod combine;
mod generate;
mod headers;
mod plan;
mod policy;
mod quota;
mod report;

use tokio::time::Instant;

pub use check::CheckAnswer;
pub use policy::{FailurePolicy, OnFailure};
pub use quota::{QuotaAnswer, QuotaAsk};
pub use report::Report;

use super::{
    attribute::{Bag, Vocabulary},
    references::References,
    snapshot::Snapshot,
    trace::Trace,
};

/// One request on its way through the phases.
#[derive(Debug)]
pub struct Request<'s> {
    pub(crate) snapshot: &'s Snapshot,
    /// Its attributes, with those that generators add.
    pub(crate) bag: Bag,
    pub(crate) references: References,
    pub(crate) namespace: String,
    pub(crate) deadline: Option<Instant>,
    /// Whether attribute generators have run.
    pub(crate) generated: bool,
    pub(crate) trace: Option<Box<Trace>>,
    condition_errors: u64,
}

/// Why the engine has no answer: each failure in words, every one of them. The Mixer API answers INTERNAL to a check and
/// UNKNOWN to a report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .failures.join("; "))]
pub struct DispatchError {
    /// What failed.
    pub failures: Vec<String>,
}

impl DispatchError {
    /// The same, with the phase in which it came up.
    fn within(self, phase: &str) -> Self {
        Self { failures: vec![format!("{phase}: {self}")] }
    }
}

impl<'s> Request<'s> {
    /// A request with these attributes, which must be of the snapshot's vocabulary.
    pub fn new(snapshot: &'s Snapshot, bag: Bag, deadline: Option<Instant>, traced: bool) -> Self {
        let mut references = References::default();
        let namespace = snapshot.namespace_slots.namespace(&bag, &mut references.before).to_owned();
        let trace = traced.then(|| Box::new(Trace { namespace: namespace.clone(), steps: Vec::new() }));
        let generated = false;
        Self { snapshot, bag, references, namespace, deadline, generated, trace, condition_errors: 0 }
    }

    /// What the answers depend on.
    pub fn references(&self) -> &References {
        &self.references
    }

    /// The attributes that there can be.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.snapshot.vocabulary
    }

    /// The attributes, with those that generators made.
    pub fn attributes(&self) -> &Bag {
        &self.bag
    }

    /// How many conditions could not be evaluated.
    pub fn condition_errors(&self) -> u64 {
        self.condition_errors
    }

    /// What was done, if the request is traced.
    pub fn into_trace(self) -> Option<Trace> {
        self.trace.map(|trace| *trace)
    }
}
