//! Evaluates conditions and builds instances: the part that all phases share.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use mixer_adapter_core::value::ValueType;
use mixer_adapter_host::handler::BuiltInstance;

use super::{
    context::{Context, Record},
    evaluation::Evaluation,
};
use crate::{
    attribute::{Attributes, Bag, Reads, Vocabulary},
    expression::{EvalError, Evaluated, Expression},
    failed_part::FailureCause,
    limits::LimitError,
    policy::FailureEffect,
    references::References,
    resource_counts::{AnswerOrigin, RuleCounts},
    rules::{Condition, Destination, Entry, Group, Rules, Table},
    shadow::{dimensions_field, keep_apart},
    trace::{Phase, Step},
};

/// A phase of a request. It reads the attributes, and records references, traces and failures.
pub(super) struct Evaluator<'r, 's> {
    pub(super) phase: Phase,
    pub(super) context: &'r Context<'s>,
    pub(super) bag: &'r Bag,
    pub(super) namespace: &'r str,
    pub(super) references: &'r mut References,
    pub(super) record: &'r mut Record,
    pub(super) evaluation: &'r mut Evaluation,
    pub(super) failures: Vec<FailureEffect>,
}

/// The calls of a phase.
#[derive(Default)]
pub(super) struct Plan<'s> {
    /// The calls in the order of the rules.
    pub(super) calls: Vec<PlannedCall<'s>>,
    /// The conditions of the default namespace, and of the request's.
    pub(super) conditions: Vec<Conditions<'s>>,
    /// The handlers of instances that could not be built.
    pub(super) unbuilt: Vec<Arc<str>>,
    /// Whether a call was skipped because its handler is not called.
    pub(super) has_uncalled: bool,
}

/// A planned call: an instance, or all instances for a destination of a report.
#[derive(Debug)]
pub(super) struct PlannedCall<'s> {
    /// The namespace of its rules: 0 for the default one, 1 for the request's.
    pub(super) rules: usize,
    pub(super) destination: &'s Destination,
    pub(super) group: &'s Group,
    pub(super) entry: &'s Entry,
    pub(super) instance: BuiltInstance,
}

/// The conditions of the rules of a namespace, each evaluated at most once per request.
pub(super) struct Conditions<'s> {
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
    fn count(self, counts: Option<&Arc<RuleCounts>>, origin: Option<&mut AnswerOrigin>) {
        let Some(counts) = counts else { return };
        let count = match self {
            Self::Matched => &counts.matched,
            Self::Failed => &counts.failed,
            Self::NotMatched => return,
        };
        count.fetch_add(1, Relaxed);
        if let (Self::Matched, Some(origin)) = (self, origin) {
            origin.matched.push(counts.clone());
        }
    }
}

impl<'r, 's> Evaluator<'r, 's> {
    /// Evaluates the rules of a table that apply to the request, and builds the instances for which `is_selected` returns true. Its
    /// arguments are an instance, and whether its rule matches.
    ///
    /// # Errors
    /// The instances exceed the limits of the call.
    pub(super) fn plan(
        &mut self,
        table: &'s Table,
        mut is_selected: impl FnMut(&'s Entry, bool) -> bool,
    ) -> Result<Plan<'s>, LimitError> {
        let mut plan = Plan::default();
        for (index, rules) in table.of(self.namespace).enumerate() {
            let mut conditions = Conditions { rules, known: vec![None; rules.conditions.len()] };
            for destination in &rules.destinations {
                for group in &destination.groups {
                    let counts = group.is_counted.then_some(&group.counts);
                    let matched = self.matches(&group.rule, counts, group.condition, &mut conditions);
                    if matched {
                        self.evaluation.caching.restrict(group.caching);
                    }
                    for entry in &group.entries {
                        if !is_selected(entry, matched) || !matched {
                            continue;
                        }
                        match self.build(entry)? {
                            None => {
                                let handler = &destination.handler.name;
                                group.counts.add_unbuilt(handler);
                                self.record.failed.add(&group.rule, Some(handler), FailureCause::Instance);
                                plan.unbuilt.push(handler.clone());
                            }
                            Some(instance) if self.is_called(destination) => {
                                let rules = index;
                                plan.calls.push(PlannedCall { rules, destination, group, entry, instance });
                            }
                            Some(_) => {
                                plan.has_uncalled = true;
                                let Destination { handler, template, .. } = destination;
                                let instance = &entry.instance.name;
                                self.record
                                    .trace(|| Step::skipped_call(&handler.name, template.name(), instance));
                            }
                        }
                    }
                }
            }
            plan.conditions.push(conditions);
        }
        Ok(plan)
    }

    /// Returns whether a handler is called. In the shadow, a quota without separate counters is not called.
    fn is_called(&self, destination: &Destination) -> bool {
        let Destination { handler, template, .. } = destination;
        let is_apart = self.phase != Phase::Quota
            || self.context.snapshot.shadow_kind.is_none()
            || dimensions_field(template).is_some();
        handler.target.is_called(template) && is_apart
    }

    /// Records the calls of a phase.
    pub(super) fn add_calls(&mut self, plan: &Plan<'_>) {
        self.evaluation.add_calls(plan.calls.len());
        if let Some(origin) = &mut self.record.origin {
            origin.called.extend(plan.calls.iter().map(|call| call.destination.handler.counts.clone()));
        }
    }

    /// Returns whether a condition matches, and counts the outcome. A condition that cannot be evaluated does not match
    /// (docs/behaviour/dispatch.md#conditions).
    pub(super) fn matches(
        &mut self,
        rule: &Arc<str>,
        counts: Option<&Arc<RuleCounts>>,
        index: usize,
        conditions: &mut Conditions<'_>,
    ) -> bool {
        let Some(condition) = conditions.rules.conditions.get(index) else { return false };
        if let Some(known) = conditions.known.get(index).copied().flatten() {
            known.count(counts, self.record.origin.as_deref_mut());
            let matched = known == Outcome::Matched;
            self.trace_rule(rule, condition, matched, None);
            return matched;
        }
        let evaluated = condition.expression.as_ref().map(|expression| {
            let bag = self.bag;
            expression.eval_bool(bag, self.reads())
        });
        let (outcome, error) = match evaluated {
            None | Some(Ok(true)) => (Outcome::Matched, None),
            Some(Ok(false)) => (Outcome::NotMatched, None),
            Some(Err(error)) => (Outcome::Failed, Some(error.to_string())),
        };
        outcome.count(counts, self.record.origin.as_deref_mut());
        conditions.known[index] = Some(outcome);
        if let Some(error) = &error {
            self.record.counts.condition_errors += 1;
            tracing::debug!(%rule, condition = &*condition.text, error, "a condition could not be evaluated");
            let policy = self.context.policy.match_error;
            if let Some(failure) = policy.of_condition(|| format!("condition of {rule}: {error}")) {
                self.failures.push(failure);
                self.record.failed.add(rule, None, FailureCause::Condition);
            }
        }
        let matched = outcome == Outcome::Matched;
        self.trace_rule(rule, condition, matched, error);
        matched
    }

    /// Returns an instance; `None` if it cannot be built.
    fn build(&mut self, entry: &Entry) -> Result<Option<BuiltInstance>, LimitError> {
        let bag = self.bag;
        let apart = self.context.snapshot.shadow_kind.filter(|_| self.phase == Phase::Quota);
        let built = match &entry.local {
            Some(local) if apart.is_none() => {
                local.build(Attributes::from(bag), self.reads()).map(BuiltInstance::local)
            }
            _ => {
                let mut encoded = Vec::with_capacity(128);
                let built = entry.instance.encode(Attributes::from(bag), self.reads(), &mut encoded);
                if let Some(kind) = apart {
                    keep_apart(kind, &entry.instance.template, &mut encoded);
                }
                built.map(|()| BuiltInstance::Encoded(encoded))
            }
        };
        let count = if built.is_ok() { &entry.counts.built } else { &entry.counts.failed };
        count.fetch_add(1, Relaxed);
        if let Ok(instance) = &built {
            self.record.budget.add_instance(instance.encoded_len())?;
        }
        self.record.trace(|| Step::Instance {
            instance: entry.instance.name.to_string(),
            params: entry.instance.explain(Attributes::from(bag)),
            built: built
                .as_ref()
                .ok()
                .map(|instance| crate::trace_json(entry.instance.template.instance(), &instance.encoded())),
            error: built.as_ref().err().map(ToString::to_string),
        });
        Ok(match built {
            Ok(instance) => Some(instance),
            Err(error) => {
                let policy = self.context.policy.adapter_error;
                let failure =
                    policy.of_call(|| format!("instance {} cannot be built: {error}", entry.instance.name));
                self.failures.push(failure);
                None
            }
        })
    }

    /// The reads before or after attribute generation.
    fn reads(&mut self) -> &mut Reads {
        match self.phase {
            Phase::Generate => &mut self.references.before,
            _ => &mut self.references.after,
        }
    }

    fn trace_rule(&mut self, rule: &str, condition: &Condition, matched: bool, error: Option<String>) {
        let (phase, bag, places) = (self.phase, self.bag, &self.context.snapshot.places);
        self.record.trace(|| Step::Rule {
            phase,
            rule: rule.to_owned(),
            condition: condition.text.to_string(),
            matched,
            error,
            place: places.get(rule).map(|place| place.place.to_string()),
            parts: condition.expression.as_ref().map_or_else(Vec::new, |expression| {
                expression.parts(&condition.text, bag.vocabulary(), Attributes::from(bag))
            }),
        });
    }

    /// Evaluates an expression that also reads `extra`, attributes of a vocabulary that extends the request's.
    pub(super) fn eval_with<'e>(
        &mut self,
        expression: &'e Expression,
        extra: &'e Bag,
    ) -> Result<Evaluated<'e>, EvalError>
    where
        'r: 'e,
    {
        let mut reads = Reads::default();
        let value = expression.eval(self.bag.with(extra), &mut reads);
        self.merge_reads(&reads, extra.vocabulary());
        value
    }

    /// Merges reads of an extending vocabulary into the request's reads.
    fn merge_reads(&mut self, reads: &Reads, extended: &Vocabulary) {
        let bag = self.bag;
        for reference in reads.all(extended) {
            match (bag.vocabulary().find(reference.name), reference.key) {
                (Some(declared), None) => {
                    let target = self.reads();
                    target.record(declared.slot, bag.at(declared.slot));
                    if reference.present && !reads.whole_maps().any(|slot| slot == declared.slot) {
                        target.record_by_key(declared.slot);
                    }
                }
                (Some(declared), Some(key)) => {
                    self.reads().record_key(declared.slot, key, reference.present, || key.into());
                }
                (None, None) if !reference.present || is_whole_map(reference.name, reads, extended) => {
                    self.references.absent_outputs.push(reference.name.into());
                }
                (None, _) => {}
            }
        }
    }
}

/// Returns whether an attribute is a map that was read without its keys.
fn is_whole_map(name: &str, reads: &Reads, vocabulary: &Vocabulary) -> bool {
    vocabulary.find(name).is_some_and(|declared| declared.value_type == ValueType::StringMap)
        && !reads.all(vocabulary).any(|other| other.name == name && other.key.is_some())
}
