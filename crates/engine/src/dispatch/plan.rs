//! Plans the calls of a request: evaluates conditions and builds instances.

use std::{collections::BTreeMap, sync::Arc};

use super::{Request, evaluation::Evaluation};
use crate::policy::FailureEffect;
use crate::{
    attribute::{Attributes, Bag, Reads},
    limits::{Budget, LimitError},
    resource_counts::RuleCounts,
    rules::{Condition, Destination, Entry, Group, Rules},
    snapshot::RulePlace,
    trace::{Phase, Step, Trace},
};

/// A planned call: an instance, or all instances for a destination of a report.
#[derive(Debug)]
pub(super) struct PlannedCall<'s> {
    /// The namespace of its rules: 0 for the default one, 1 for that of the request.
    pub(super) rules: usize,
    pub(super) destination: &'s Destination,
    pub(super) group: &'s Group,
    pub(super) entry: &'s Entry,
    pub(super) instance: Vec<u8>,
}

/// The conditions of the rules of a namespace, each evaluated at most once per request.
pub(super) struct Conditions<'s> {
    index: usize,
    rules: &'s Rules,
    known: Vec<Option<Outcome>>,
}

/// The outcome of a condition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Matched,
    NotMatched,
    Failed,
}

impl Outcome {
    fn count(self, counts: Option<&RuleCounts>) {
        match (self, counts) {
            (Self::Matched, Some(counts)) => counts.add_match(),
            (Self::Failed, Some(counts)) => counts.add_failure(),
            (Self::NotMatched, _) | (_, None) => {}
        }
    }
}

impl<'s> Conditions<'s> {
    /// Creates the unevaluated conditions of the rules.
    pub(super) fn of(rules: impl Iterator<Item = &'s Rules>) -> Vec<Self> {
        rules.enumerate().map(|(index, rules)| Self::new(index, rules)).collect()
    }

    fn new(index: usize, rules: &'s Rules) -> Self {
        Self { index, rules, known: vec![None; rules.conditions.len()] }
    }
}

/// The parts of a request that planning uses, borrowed separately so that bag and reads can be used together.
pub(super) struct Planner<'r> {
    pub(super) bag: &'r Bag,
    pub(super) reads: &'r mut Reads,
    pub(super) trace: Option<&'r mut Trace>,
    places: &'r BTreeMap<Arc<str>, RulePlace>,
    pub(super) failures: Vec<FailureEffect>,
    /// The handlers of instances that could not be built.
    pub(super) unbuilt: Vec<Arc<str>>,
    /// Whether a call was skipped because its handler is not called.
    pub(super) uncalled: bool,
    /// Number of conditions that could not be evaluated.
    pub(super) condition_errors: &'r mut u64,
    pub(super) evaluation: &'r mut Evaluation,
    budget: &'r mut Budget,
    pub(super) match_error: super::OnFailure,
    pub(super) adapter_error: super::OnFailure,
}

impl Request<'_> {
    /// Creates a planner; `before` is true before attribute generation.
    pub(super) fn planner(&mut self, before: bool) -> Planner<'_> {
        let reads = match before {
            true => &mut self.references.before,
            false => &mut self.references.after,
        };
        Planner {
            bag: &self.bag,
            reads,
            trace: self.trace.as_deref_mut(),
            places: &self.snapshot.places,
            failures: Vec::new(),
            unbuilt: Vec::new(),
            uncalled: false,
            condition_errors: &mut self.condition_errors,
            evaluation: &mut self.evaluation,
            budget: &mut self.budget,
            match_error: self.policy.match_error,
            adapter_error: self.policy.adapter_error,
        }
    }
}

impl Planner<'_> {
    /// Returns whether a condition matches, and counts the outcome. One that cannot be evaluated does not match
    /// (docs/behaviour/dispatch.md#conditions).
    pub(super) fn matches(
        &mut self,
        phase: Phase,
        rule: &str,
        counts: Option<&RuleCounts>,
        index: usize,
        conditions: &mut Conditions<'_>,
    ) -> bool {
        let Some(condition) = conditions.rules.conditions.get(index) else { return false };
        if let Some(known) = conditions.known.get(index).copied().flatten() {
            known.count(counts);
            let matched = known == Outcome::Matched;
            self.trace_rule(phase, rule, condition, matched, None);
            return matched;
        }
        let (matched, error) = match &condition.expression {
            None => (true, None),
            Some(expression) => match expression.eval_bool(self.bag, self.reads) {
                Ok(matched) => (matched, None),
                Err(error) => (false, Some(error.to_string())),
            },
        };
        let outcome = match (matched, &error) {
            (true, _) => Outcome::Matched,
            (false, None) => Outcome::NotMatched,
            (false, Some(_)) => Outcome::Failed,
        };
        outcome.count(counts);
        conditions.known[index] = Some(outcome);
        if let Some(error) = &error {
            *self.condition_errors += 1;
            tracing::debug!(rule, condition = condition.text, error, "a condition could not be evaluated");
            self.failures.extend(self.match_error.of_condition(|| format!("condition of {rule}: {error}")));
        }
        self.trace_rule(phase, rule, condition, matched, error);
        matched
    }

    /// Returns the calls of all selected instances in the order of the rules.
    ///
    /// # Errors
    /// The instances exceed the limits of the call.
    pub(super) fn plan<'s>(
        &mut self,
        phase: Phase,
        conditions: &mut Conditions<'s>,
        mut wanted: impl FnMut(&'s Entry, bool) -> bool,
        mut planned: impl FnMut(PlannedCall<'s>),
    ) -> Result<(), LimitError> {
        for destination in &conditions.rules.destinations {
            for group in &destination.groups {
                let counts = group.is_counted.then_some(&*group.counts);
                let matched = self.matches(phase, &group.rule, counts, group.condition, conditions);
                if matched {
                    self.evaluation.caching.restrict(group.caching);
                }
                for entry in &group.entries {
                    if !wanted(entry, matched) || !matched {
                        continue;
                    }
                    match self.build(entry)? {
                        None => self.unbuilt.push(destination.handler.name.clone()),
                        Some(instance) if destination.handler.is_called(&destination.template) => {
                            planned(PlannedCall {
                                rules: conditions.index,
                                destination,
                                group,
                                entry,
                                instance,
                            });
                        }
                        Some(_) => self.leave_out(destination, entry),
                    }
                }
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, destination: &Destination, entry: &Entry) {
        self.uncalled = true;
        if let Some(trace) = &mut self.trace {
            trace.uncalled(&destination.handler.name, destination.template.name(), &entry.instance.name);
        }
    }

    /// Returns an encoded instance; `None` if it cannot be built.
    fn build(&mut self, entry: &Entry) -> Result<Option<Vec<u8>>, LimitError> {
        let mut encoded = Vec::with_capacity(128);
        let built = entry.instance.encode(Attributes::from(self.bag), self.reads, &mut encoded);
        entry.counts.add(built.is_ok());
        if built.is_ok() {
            self.budget.add_instance(encoded.len())?;
        }
        if let Some(trace) = &mut self.trace {
            trace.add(|| Step::Instance {
                instance: entry.instance.name.to_string(),
                params: entry.instance.explain(Attributes::from(self.bag)),
                built: built.is_ok().then(|| crate::trace_json(entry.instance.template.instance(), &encoded)),
                error: built.as_ref().err().map(ToString::to_string),
            });
        }
        match built {
            Ok(()) => Ok(Some(encoded)),
            Err(error) => {
                let text = || format!("instance {} cannot be built: {error}", entry.instance.name);
                self.failures.push(self.adapter_error.of_call(text));
                Ok(None)
            }
        }
    }

    fn trace_rule(
        &mut self,
        phase: Phase,
        rule: &str,
        condition: &Condition,
        matched: bool,
        error: Option<String>,
    ) {
        if let Some(trace) = &mut self.trace {
            trace.add(|| {
                let place = self.places.get(rule).map(|place| place.place.to_string());
                let parts = condition.expression.as_ref().map(|expression| {
                    expression.parts(&condition.text, self.bag.vocabulary(), Attributes::from(self.bag))
                });
                let (rule, condition) = (rule.to_owned(), condition.text.clone());
                let parts = parts.unwrap_or_default();
                Step::Rule { phase, rule, condition, matched, error, place, parts }
            });
        }
    }
}
