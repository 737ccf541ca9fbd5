//! Header operations of rules with the outputs of their actions (docs/behaviour/dispatch.md#header-operations).

use bytes::Bytes;

use super::{Request, plan::Conditions};
use crate::{
    answer::AnswerDetails,
    attribute::{Bag, Reads},
    expression::Evaluated,
    policy::FailureEffect,
    proto::istio::mixer::v1::{HeaderOperation, RouteDirective, header_operation::Operation},
    rules::{HeaderRule, HeaderTemplate, Rules},
    trace::{Phase, Step, cut},
};

impl<'s> Request<'s> {
    /// Returns the header operations of the matching rules, `None` if there are none, and failures of the evaluation. Adds the rules
    /// and the outputs of their actions to the details of a strict request.
    pub(super) fn header_operations(
        &mut self,
        rules: &'s Rules,
        conditions: &mut Conditions<'s>,
        outputs: &[Option<Bytes>],
        details: &mut AnswerDetails,
    ) -> (Option<RouteDirective>, Vec<FailureEffect>) {
        let mut directive = RouteDirective::default();
        let mut failures = Vec::new();
        for rule in &rules.operations {
            // Of a rule without operations only the outputs matter.
            if !self.is_strict && rule.request.is_empty() && rule.response.is_empty() {
                continue;
            }
            let mut planner = self.planner(false);
            let counts = rule.counts.as_deref();
            let matches = planner.matches(Phase::Headers, &rule.rule, counts, rule.condition, conditions);
            failures.append(&mut planner.failures);
            if !matches {
                continue;
            }
            self.evaluation.caching.restrict(rule.caching);
            let extra = outputs_of(rule, outputs);
            if self.names_rules {
                details.add_rule(&rule.rule);
            }
            if self.is_strict {
                details.add_outputs(rule, &extra);
            }
            for template in &rule.request {
                failures.extend(self.operate(
                    rule,
                    template,
                    &extra,
                    &mut directive.request_header_operations,
                ));
            }
            for template in &rule.response {
                failures.extend(self.operate(
                    rule,
                    template,
                    &extra,
                    &mut directive.response_header_operations,
                ));
            }
        }
        ((directive != RouteDirective::default()).then_some(directive), failures)
    }

    fn operate(
        &mut self,
        rule: &HeaderRule,
        template: &HeaderTemplate,
        extra: &Bag,
        operations: &mut Vec<HeaderOperation>,
    ) -> Option<FailureEffect> {
        let mut failure = None;
        let kind = template.operation;
        let operation =
            |value: String| HeaderOperation { name: template.name.clone(), value, operation: kind as i32 };
        if kind == Operation::Remove {
            operations.push(operation(String::new()));
            self.trace_header(rule, template, || "removed".to_owned());
            return None;
        }
        for value in &template.values {
            let mut reads = Reads::default();
            let value = value.eval(self.bag.with(extra), &mut reads).map(into_text);
            self.merge_reads(&reads, &rule.vocabulary, false);
            match value {
                Ok(value) if value.is_empty() => {
                    self.trace_header(rule, template, || "left out: the value is empty".to_owned());
                }
                Ok(value) => {
                    self.trace_header(rule, template, || format!("{kind:?} {:?}", cut(&value)));
                    operations.push(operation(value));
                }
                Err(error) => {
                    self.trace_header(rule, template, || format!("left out: {error}"));
                    let text = || format!("header {} of {}: {error}", template.name, rule.rule);
                    failure = failure.or(self.policy.match_error.of_header(text));
                }
            }
        }
        failure
    }

    fn trace_header(
        &mut self,
        rule: &HeaderRule,
        template: &HeaderTemplate,
        outcome: impl FnOnce() -> String,
    ) {
        if let Some(trace) = &mut self.trace {
            trace.add(|| {
                let (rule, header) = (rule.rule.to_string(), template.name.clone());
                Step::Header { rule, header, outcome: outcome() }
            });
        }
    }
}

fn into_text(value: Evaluated<'_>) -> String {
    match value {
        Evaluated::String(text) => text.into_owned(),
        // The compiler accepts no other type.
        _ => String::new(),
    }
}

/// Collects the outputs of the rule's actions as attributes.
fn outputs_of(rule: &HeaderRule, outputs: &[Option<Bytes>]) -> Bag {
    let mut bag = Bag::new(rule.vocabulary.clone());
    for (entry, declared) in &rule.outputs {
        if let Some(Some(output)) = outputs.get(*entry) {
            // An output that cannot be decoded counts as missing.
            let _ = declared.read(output, &mut bag);
        }
    }
    bag
}
