//! Header operations of rules with the outputs of their actions (docs/behaviour/dispatch.md#header-operations).

use bytes::Bytes;

use super::{
    check::Check,
    evaluator::{Conditions, Evaluator},
};
use crate::{
    attribute::Bag,
    expression::Evaluated,
    failed_part::FailureCause,
    proto::istio::mixer::v1::{HeaderOperation, RouteDirective, header_operation::Operation},
    rules::{HeaderRule, HeaderTemplate, Rules},
    trace::{Phase, Step, cut},
};

impl<'s> Check<'_, 's> {
    /// Adds the header operations of the matching rules to a directive, and the rules and the outputs of their actions to the details of a
    /// strict request.
    pub(super) fn header_operations(
        &mut self,
        rules: &'s Rules,
        conditions: &mut Conditions<'s>,
        directive: &mut RouteDirective,
    ) {
        self.evaluator.phase = Phase::Headers;
        let context = self.evaluator.context;
        for rule in &rules.operations {
            // Of a rule without operations only the outputs matter.
            if !context.is_strict && rule.request.is_empty() && rule.response.is_empty() {
                continue;
            }
            let counts = rule.counts.as_ref();
            if !self.evaluator.matches(&rule.rule, counts, rule.condition, conditions) {
                continue;
            }
            self.evaluator.evaluation.caching.restrict(rule.caching);
            let extra = outputs_of(rule, &self.outputs);
            if context.names_rules {
                self.details.add_rule(&rule.rule);
            }
            if context.is_strict {
                self.details.add_outputs(rule, &extra);
            }
            let RouteDirective { request_header_operations, response_header_operations, .. } = directive;
            for template in &*rule.request {
                self.evaluator.operate(rule, template, &extra, request_header_operations);
            }
            for template in &*rule.response {
                self.evaluator.operate(rule, template, &extra, response_header_operations);
            }
        }
    }
}

impl Evaluator<'_, '_> {
    /// Adds the operations on one header.
    fn operate(
        &mut self,
        rule: &HeaderRule,
        template: &HeaderTemplate,
        extra: &Bag,
        operations: &mut Vec<HeaderOperation>,
    ) {
        let HeaderTemplate { name, operation, values } = template;
        if *operation == Operation::Remove {
            operations.push(template.with_value(String::new()));
            self.record.trace(|| rule.step(name, "removed".to_owned()));
            return;
        }
        let mut failure = None;
        for value in values {
            match self.eval_with(value, extra).map(into_text) {
                Ok(value) if value.is_empty() => {
                    self.record.trace(|| rule.step(name, "left out: the value is empty".to_owned()));
                }
                Ok(value) => {
                    self.record.trace(|| rule.step(name, format!("{operation:?} {:?}", cut(&value))));
                    operations.push(template.with_value(value));
                }
                Err(error) => {
                    self.record.trace(|| rule.step(name, format!("left out: {error}")));
                    let policy = self.context.policy.match_error;
                    failure = failure
                        .or_else(|| policy.of_header(|| format!("header {name} of {}: {error}", rule.rule)));
                    if failure.is_some() {
                        self.record.failed.add(&rule.rule, None, FailureCause::Header);
                    }
                }
            }
        }
        self.failures.extend(failure);
    }
}

impl HeaderRule {
    fn step(&self, header: &str, outcome: String) -> Step {
        Step::Header { rule: self.rule.to_string(), header: header.to_owned(), outcome }
    }
}

impl HeaderTemplate {
    fn with_value(&self, value: String) -> HeaderOperation {
        HeaderOperation { name: self.name.clone(), value, operation: self.operation as i32 }
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
