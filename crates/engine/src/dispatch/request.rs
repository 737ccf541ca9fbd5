//! A request: its fixed inputs, its attributes, and the records of its phases.

use std::sync::Arc;

use mixer_adapter_host::handler::Caller;

use super::{
    DispatchError,
    context::{Context, Record, RequestCounts},
    evaluation::Evaluation,
    evaluator::Evaluator,
};
use crate::{
    attribute::{Bag, Vocabulary},
    cache::{AnswerKey, CacheOutcome},
    failed_part::FailedParts,
    limits::Budget,
    references::References,
    snapshot::Snapshot,
    trace::{Phase, Step, Trace, cut},
};

/// A request. Attribute generation is the first phase; a check and quotas, or a report, follow.
#[derive(Debug)]
pub struct Request<'s> {
    pub(super) context: Context<'s>,
    /// Set by attribute generation; other phases only read it.
    pub(super) bag: Bag,
    pub(super) namespace: String,
    /// Whether attribute generators have run.
    is_generated: bool,
    pub(super) references: References,
    pub(super) record: Record,
    pub(super) evaluation: Evaluation,
    pub(super) cache_use: Option<CacheUse>,
    /// The references of an answer from the cache, in place of `references`.
    pub(super) reused_references: Option<Arc<References>>,
}

/// The attributes of a request without its snapshot.
#[derive(Debug)]
pub(crate) struct RequestAttributes {
    /// The attributes, also generated ones.
    pub(crate) bag: Bag,
    is_generated: bool,
    /// The slots of generated attributes.
    generated: Vec<u32>,
    pub(crate) is_strict: bool,
}

impl RequestAttributes {
    /// Creates a request of the same snapshot.
    pub(crate) fn request<'s>(&self, snapshot: &'s Snapshot, caller: &'s Caller) -> Request<'s> {
        Request { is_generated: self.is_generated, ..Request::new(snapshot, self.bag.clone(), caller) }
    }

    /// Copies the attributes, except generated ones, to a bag.
    pub(crate) fn copy_received(&self, target: &mut Bag) {
        target.copy(&self.bag, |slot| !self.generated.contains(&slot));
    }
}

/// How the cache was used for an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheUse {
    /// Where the answer comes from.
    pub outcome: CacheOutcome,
    /// The life and the key of the answer; `None` if it is not cached.
    pub key: Option<AnswerKey>,
}

/// Maximum number of rules of other namespaces in a trace.
const MAX_OTHERS: usize = 20;

impl<'s> Request<'s> {
    /// Creates a request with attributes of the snapshot's vocabulary. Its calls have the deadline of `caller`, and its name in logs.
    pub fn new(snapshot: &'s Snapshot, bag: Bag, caller: &'s Caller) -> Self {
        let mut references = References::default();
        let namespace = snapshot.namespace_slots.namespace(&bag, &mut references.before).to_owned();
        let policy = snapshot.policy;
        Self {
            context: Context { snapshot, caller, policy, is_strict: false, names_rules: false },
            bag,
            namespace,
            is_generated: false,
            references,
            record: Record::default(),
            evaluation: Evaluation::default(),
            cache_use: None,
            reused_references: None,
        }
    }

    /// Adds the steps of the request to a trace.
    #[must_use]
    pub fn with_trace(mut self, mut trace: Trace) -> Self {
        let snapshot = self.context.snapshot;
        let others = snapshot.places.iter().filter(|(_, place)| {
            place.namespace != snapshot.default_namespace && *place.namespace != *self.namespace
        });
        for (rule, place) in others.take(MAX_OTHERS) {
            trace.add(|| Step::OtherNamespace { rule: rule.to_string(), place: place.place.to_string() });
        }
        self.record.trace = Some(Box::new(trace));
        self.with_rules(true)
    }

    /// Makes failures that Mixer ignores fail the request; see [`FailurePolicy::strict`](super::FailurePolicy::strict).
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.context.policy = self.context.policy.strict();
        (self.context.is_strict, self.context.names_rules) = (true, true);
        self
    }

    /// Makes the details of answers name the rules that decided, as for strict requests.
    #[must_use]
    pub fn with_rules(mut self, names_rules: bool) -> Self {
        self.context.names_rules |= names_rules;
        self
    }

    /// Sets the budget; by default it has the default limits.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Self {
        self.record.budget = budget;
        self
    }

    /// The budget, for further requests of the same call.
    pub fn budget(&self) -> Budget {
        self.record.budget.clone().next_request()
    }

    /// The references of the answers so far.
    pub fn references(&self) -> &References {
        self.reused_references.as_deref().unwrap_or(&self.references)
    }

    /// The declared attributes.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.context.snapshot.vocabulary
    }

    /// The attributes, including generated ones.
    pub fn attributes(&self) -> &Bag {
        &self.bag
    }

    /// The namespace whose rules apply in addition to the default namespace's; empty if it has no rules.
    pub fn tenant(&self) -> &str {
        let Snapshot { checks, reports, quotas, generators, .. } = self.context.snapshot;
        let mut tables = [checks, reports, quotas, generators].into_iter();
        let has_rules = tables.any(|table| table.by_namespace.contains_key(self.namespace.as_str()));
        if has_rules { &self.namespace } else { "" }
    }

    /// The namespace whose rules apply in addition to the default namespace's.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The counts of events so far.
    pub fn counts(&self) -> RequestCounts {
        self.record.counts
    }

    /// Takes the parts that failed since the last call.
    pub fn take_failed(&mut self) -> FailedParts {
        std::mem::take(&mut self.record.failed)
    }

    /// Takes the full names of the rules whose quotas granted less than the amount since the last call.
    pub(crate) fn take_refusing(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.record.refusing)
    }

    /// Takes the attributes without their parsed bodies. The request has no attributes afterwards.
    pub(crate) fn take_attributes(&mut self) -> RequestAttributes {
        let none = Bag::of_used(self.bag.vocabulary().clone(), Arc::default());
        RequestAttributes {
            bag: std::mem::replace(&mut self.bag, none).without_json(),
            is_generated: self.is_generated,
            generated: self.references.generated.clone(),
            is_strict: self.context.is_strict,
        }
    }

    /// How the cache was used for the answer; `None` if it was evaluated without a lookup.
    pub fn cache_use(&self) -> Option<&CacheUse> {
        self.cache_use.as_ref()
    }

    /// Takes the trace, if there is one.
    pub fn into_trace(self) -> Option<Trace> {
        self.record.trace.map(|trace| *trace)
    }

    fn evaluator(&mut self, phase: Phase) -> Evaluator<'_, 's> {
        Evaluator {
            phase,
            context: &self.context,
            bag: &self.bag,
            namespace: &self.namespace,
            references: &mut self.references,
            record: &mut self.record,
            evaluation: &mut self.evaluation,
            failures: Vec::new(),
        }
    }

    /// Begins a phase after attribute generation, which runs first unless it has run.
    pub(super) async fn begin(&mut self, phase: Phase) -> Result<Evaluator<'_, 's>, DispatchError> {
        self.generate_once().await?;
        Ok(self.evaluator(phase))
    }

    /// Runs the attribute generators unless they have run.
    pub(crate) async fn generate_once(&mut self) -> Result<(), DispatchError> {
        if !self.is_generated {
            self.generate().await?;
            self.is_generated = true;
        }
        Ok(())
    }

    /// Runs the attribute generators, and sets the attributes that the request does not have.
    async fn generate(&mut self) -> Result<(), DispatchError> {
        if !self.context.snapshot.generators.has_rules(&self.namespace) {
            return Ok(());
        }
        for generated in Box::pin(self.evaluator(Phase::Generate).generate()).await? {
            let is_new = self.bag.at(generated.slot).is_none();
            self.record.trace(|| Step::Generated {
                attribute: generated.attribute.to_string(),
                value: is_new.then(|| cut(&generated.value.to_string()).into_owned()),
            });
            if is_new {
                self.bag.set(generated.slot, generated.value);
                self.references.generated.push(generated.slot);
            }
        }
        // Generators were selected by the namespace of the request; from here on a generated one applies.
        if !self.references.generated.is_empty() {
            let slots = &self.context.snapshot.namespace_slots;
            self.namespace = slots.namespace(&self.bag, &mut self.references.after).to_owned();
        }
        Ok(())
    }
}
