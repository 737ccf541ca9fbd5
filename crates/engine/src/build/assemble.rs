//! Assembles rules into tables by variety and namespace, with distinct conditions, and instances by handler and
//! template.

use std::{collections::BTreeMap, sync::Arc};

use super::rule_spec::{HeaderSpec, RuleSpec};
use crate::{
    expression::{Expression, Language},
    handler::RuntimeHandler,
    instance::Instance,
    rules::{Condition, Destination, Entry, Group, HeaderRule, Rules},
    snapshot::Snapshot,
};
use mixer_adapter_config::ResourceName;
use mixer_adapter_core::template::Variety;

type OpenHandlers = BTreeMap<ResourceName, Arc<RuntimeHandler>>;

fn rules_of<'s>(snapshot: &'s mut Snapshot, variety: Variety, namespace: &str) -> &'s mut Rules {
    let table = match variety {
        Variety::Check | Variety::CheckWithOutput => &mut snapshot.checks,
        Variety::Report => &mut snapshot.reports,
        Variety::Quota => &mut snapshot.quotas,
        Variety::AttributeGenerator => &mut snapshot.generators,
    };
    if *namespace == *snapshot.default_namespace {
        &mut table.default
    } else {
        table.by_namespace.entry(namespace.into()).or_default()
    }
}

/// Adds a rule to the tables of a snapshot.
pub(super) fn add(rule: &RuleSpec, opened: &OpenHandlers, snapshot: &mut Snapshot) {
    let RuleSpec {
        name, full_name, language, caching, denial, condition, expression, actions, headers, ..
    } = rule;
    let (namespace, rule) = (name.namespace(), full_name);
    let resource_counts = snapshot.resource_counts.clone();
    let counts = resource_counts.rules.of(rule);
    let (language, caching) = (*language, *caching);
    let mut check_entries = BTreeMap::new();
    for (action_index, action) in actions.iter().enumerate() {
        let Some(handler) = opened.get(&action.handler) else { continue };
        for (place, compiled) in action.instances.iter().enumerate() {
            let variety = compiled.instance.template.variety();
            snapshot.has_dimensions_in_metadata |= compiled.instance.quota.dimensions_in_metadata;
            let rules = rules_of(snapshot, variety, namespace);
            if !caching.stale_if_error.is_zero() {
                rules.stale_rule.get_or_insert_with(|| rule.clone());
            }
            let condition = rules.condition(language, condition, expression.as_ref());
            let index = rules.entries;
            rules.entries += 1;
            let entry = Entry {
                index,
                local: handler.local_form(&compiled.instance),
                instance: compiled.instance.clone(),
                counts: resource_counts.instances.of(&compiled.instance.name),
                bindings: compiled.bindings.clone(),
            };
            let is_counted = rules.counted_rule.replace(rule.clone()).is_none_or(|last| last != *rule);
            let destination = rules.destination(handler, &compiled.instance);
            // The instances of an action are consecutive.
            match destination.groups.last_mut() {
                Some(group) if group.rule == *rule && group.action == action_index => {
                    group.entries.push(entry)
                }
                _ => destination.groups.push(Group {
                    rule: rule.clone(),
                    counts: counts.clone(),
                    is_counted,
                    caching,
                    denial: denial.clone(),
                    action: action_index,
                    condition,
                    entries: vec![entry],
                }),
            }
            if matches!(variety, Variety::Check | Variety::CheckWithOutput) {
                check_entries.insert((action_index, place), index);
            }
        }
    }
    if let Some(HeaderSpec { vocabulary, outputs, request, response }) = headers {
        let rules = rules_of(snapshot, Variety::Check, namespace);
        let condition = rules.condition(language, condition, expression.as_ref());
        let outputs = outputs
            .iter()
            .filter_map(|(action, place, outputs)| {
                Some((*check_entries.get(&(*action, *place))?, outputs.clone()))
            })
            .collect();
        let is_counted = rules.counted_rule.as_ref() == Some(rule);
        rules.operations.push(HeaderRule {
            rule: rule.clone(),
            counts: (!is_counted).then_some(counts),
            caching,
            condition,
            vocabulary: vocabulary.clone(),
            outputs,
            request: request.clone(),
            response: response.clone(),
        });
    }
}

impl Rules {
    /// Returns the index of a condition; equal sources in one language share one.
    fn condition(
        &mut self,
        language: Language,
        text: &Arc<str>,
        expression: Option<&Arc<Expression>>,
    ) -> usize {
        let next = self.conditions.len();
        let index = *self.condition_indices.entry((language, text.clone())).or_insert(next);
        if index == next {
            self.conditions.push(Condition { text: text.clone(), expression: expression.cloned() });
        }
        index
    }

    fn destination(&mut self, handler: &Arc<RuntimeHandler>, instance: &Instance) -> &mut Destination {
        let key = (handler.name.clone(), instance.template.method().to_owned());
        let next = self.destinations.len();
        let index = *self.destination_indices.entry(key).or_insert(next);
        if index == next {
            if !handler.answers_from_memory() {
                self.costly_handler.get_or_insert_with(|| handler.name.clone());
            }
            self.destinations.push(Destination {
                handler: handler.clone(),
                template: instance.template.clone(),
                groups: Vec::new(),
            });
        }
        &mut self.destinations[index]
    }
}
