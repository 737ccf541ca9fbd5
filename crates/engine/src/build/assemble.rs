//! Assembles rules into tables by variety and namespace, with distinct conditions, and instances by handler and
//! template.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use foldhash::fast::RandomState;

use super::{
    handlers::Refused,
    rule_spec::{HeaderSpec, RuleSpec},
};
use crate::{
    expression::Language,
    handler::RuntimeHandler,
    instance::Instance,
    resource_counts::ResourceCounts,
    rules::{Condition, Destination, Entry, Group, HeaderRule, Rules},
};
use mixer_adapter_config::ResourceName;
use mixer_adapter_core::template::Variety;

type OpenHandlers = BTreeMap<ResourceName, Arc<RuntimeHandler>>;

/// The rules of one namespace while they are assembled.
struct Assembly<'r> {
    opened: &'r OpenHandlers,
    refused: &'r Refused,
    counts: &'r ResourceCounts,
    /// In the order of the tables of a snapshot.
    tables: [TableAssembly<'r>; 4],
}

/// The rules of one namespace and variety.
#[derive(Default)]
struct TableAssembly<'r> {
    rules: Rules,
    /// The index of each condition by language and text.
    conditions: HashMap<(Language, &'r str), usize, RandomState>,
    /// The index of each destination by handler and method.
    destinations: HashMap<(&'r str, &'r str), usize, RandomState>,
    /// The last rule whose evaluations a group counts.
    counted_rule: Option<&'r Arc<str>>,
}

/// Returns the index of the table of a variety.
fn index_of(variety: Variety) -> usize {
    match variety {
        Variety::Check | Variety::CheckWithOutput => 0,
        Variety::Report => 1,
        Variety::Quota => 2,
        Variety::AttributeGenerator => 3,
    }
}

/// Assembles the rules of a namespace, for each table of a snapshot. Instances that handlers refuse are omitted.
pub(super) fn assemble<'r>(
    rules: impl Iterator<Item = &'r RuleSpec>,
    opened: &'r OpenHandlers,
    refused: &'r Refused,
    counts: &'r ResourceCounts,
) -> [Rules; 4] {
    let mut assembly = Assembly { opened, refused, counts, tables: Default::default() };
    rules.for_each(|rule| assembly.add(rule));
    assembly.tables.map(|table| table.rules)
}

impl<'r> Assembly<'r> {
    fn add(&mut self, rule: &'r RuleSpec) {
        let RuleSpec { full_name, caching, denial, actions, headers, .. } = rule;
        let counts = self.counts.rules.of(full_name);
        let mut check_entries = BTreeMap::new();
        for (action_index, action) in actions.iter().enumerate() {
            let Some(handler) = self.opened.get(&action.handler) else { continue };
            let mut outputs = headers.iter().flat_map(|headers| &headers.outputs);
            // Outputs are found by the positions of their instances.
            let has_outputs = outputs.any(|(of, ..)| *of == action_index);
            for (place, compiled) in action.instances.iter().enumerate() {
                let instance = &compiled.instance;
                if !has_outputs && self.refuses(&action.handler, instance) {
                    continue;
                }
                let variety = instance.template.variety();
                let table = &mut self.tables[index_of(variety)];
                table.rules.has_dimensions_in_metadata |= instance.quota.dimensions_in_metadata;
                if !caching.stale_if_error.is_zero() {
                    table.rules.stale_rule.get_or_insert_with(|| full_name.clone());
                }
                let condition = table.condition(rule);
                let index = table.rules.entries;
                table.rules.entries += 1;
                let entry = Entry {
                    index,
                    local: handler.local_form(instance),
                    instance: instance.clone(),
                    counts: self.counts.instances.of(&instance.name),
                    bindings: compiled.bindings.clone(),
                };
                let is_counted = !table.counts(full_name);
                table.counted_rule = Some(full_name);
                let destination = table.destination(handler, instance);
                // The instances of an action are consecutive.
                match destination.groups.last_mut() {
                    Some(group) if group.action == action_index && Arc::ptr_eq(&group.rule, full_name) => {
                        group.entries.push(entry)
                    }
                    _ => destination.groups.push(Group {
                        rule: full_name.clone(),
                        counts: counts.clone(),
                        is_counted,
                        caching: *caching,
                        denial: denial.clone(),
                        action: action_index,
                        condition,
                        entries: vec![entry],
                    }),
                }
                if has_outputs && matches!(variety, Variety::Check | Variety::CheckWithOutput) {
                    check_entries.insert((action_index, place), index);
                }
            }
        }
        if let Some(HeaderSpec { vocabulary, outputs, request, response }) = headers {
            let table = &mut self.tables[index_of(Variety::Check)];
            let outputs = outputs
                .iter()
                .filter_map(|(action, place, outputs)| {
                    Some((*check_entries.get(&(*action, *place))?, outputs.clone()))
                })
                .collect();
            let operations = HeaderRule {
                rule: full_name.clone(),
                counts: (!table.counts(full_name)).then_some(counts),
                caching: *caching,
                condition: table.condition(rule),
                vocabulary: vocabulary.clone(),
                outputs,
                request: request.clone(),
                response: response.clone(),
            };
            table.rules.operations.push(operations);
        }
    }

    fn refuses(&self, handler: &ResourceName, instance: &Instance) -> bool {
        !self.refused.is_empty() && self.refused.contains(&(handler.clone(), instance.name.to_string()))
    }
}

impl<'r> TableAssembly<'r> {
    /// Returns whether a group counts the evaluations of a rule.
    fn counts(&self, rule: &Arc<str>) -> bool {
        self.counted_rule.is_some_and(|counted| Arc::ptr_eq(counted, rule))
    }

    /// Returns the index of the condition of a rule; equal sources in one language share one.
    fn condition(&mut self, rule: &'r RuleSpec) -> usize {
        let next = self.rules.conditions.len();
        let index = *self.conditions.entry((rule.language, &*rule.condition)).or_insert(next);
        if index == next {
            let (text, expression) = (rule.condition.clone(), rule.expression.clone());
            self.rules.conditions.push(Condition { text, expression });
        }
        index
    }

    fn destination(&mut self, handler: &'r Arc<RuntimeHandler>, instance: &'r Instance) -> &mut Destination {
        let rules = &mut self.rules;
        let next = rules.destinations.len();
        let key = (&*handler.name, instance.template.method());
        let index = *self.destinations.entry(key).or_insert(next);
        if index == next {
            if !handler.answers_from_memory() {
                rules.costly_handler.get_or_insert_with(|| handler.name.clone());
            }
            rules.destinations.push(Destination {
                handler: handler.clone(),
                template: instance.template.clone(),
                groups: Vec::new(),
            });
        }
        &mut rules.destinations[index]
    }
}
