//! Rules and their actions.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use super::{
    CompiledConfig, Former,
    annotations::{ShadowedActions, denial_form, rule_settings},
    condition::warn_of_condition,
    evasion,
    faults::{compile, of_expression},
    handlers::Handlers,
    headers::operations,
    index::{Index, language},
    instances::{InstanceSpec, Instances},
    rule_index::RuleIndex,
    rule_spec::{ActionSpec, RuleSpec},
    shadow::take_shadowed,
};
use crate::{attribute::Vocabulary, snapshot::RulePlace};
use mixer_adapter_config::{
    ConfigSet, Entry, Kind, Resource, ResourceName, Spec, ValidationError, proto::istio::policy::v1beta1,
};
use mixer_adapter_core::value::ValueType;

/// Rules, each with a separate rule that has its actions in the shadow.
pub(super) type Rules = Index<[Option<Arc<RuleSpec>>; 2]>;

pub(super) fn read(
    set: &ConfigSet,
    handlers: &Handlers,
    instances: &Instances,
    vocabulary: &Arc<Vocabulary>,
    former: Option<&Former<'_>>,
    faults: &mut Vec<ValidationError>,
) -> Rules {
    let usable = Usable { set, handlers, instances };
    let former = former.filter(|former| Arc::ptr_eq(vocabulary, &former.compiled.vocabulary));
    let former = former.map(|Former { compiled, changed }| {
        let renewed: HashSet<_> = handlers
            .changed_since(&compiled.handlers)
            .chain(instances.changed_since(&compiled.instances))
            .collect();
        let rules = &compiled.rules;
        let all = (!renewed.is_empty()).then(|| rules.all.values()).into_iter().flatten();
        let referring = all.filter(|rule| refers_to(&rule.entry, &renewed));
        // The text of an error may have a suggestion, which depends on all resources.
        let again = rules.faulty.values().filter(|rule| rule.has_errors()).chain(referring);
        let again: BTreeSet<_> = again.map(|rule| rule.entry.name()).chain(changed.iter().copied()).collect();
        (rules, again.into_iter().collect::<Vec<_>>())
    });
    let former = former.as_ref().map(|(rules, again)| (*rules, &again[..]));
    Index::read(set, Kind::Rule, faults, former, |resource, spec, faults| match spec {
        Spec::Rule(spec) => Ok(rule(resource, spec, &usable, vocabulary, faults)),
        _ => Err(Vec::new()),
    })
}

/// Indexes the rules of both parts. Only rules that differ from the former configuration are read.
pub(super) fn index(rules: &Rules, former: &CompiledConfig) -> [RuleIndex; 2] {
    let mut parts = former.parts.clone();
    for name in rules.changed_since(&former.rules) {
        let (before, now) = (former.rules.get(name), rules.get(name));
        for (part, index) in parts.iter_mut().enumerate() {
            if let Some(rule) = before.and_then(|parts| parts[part].as_deref()) {
                index.remove(rule);
            }
            if let Some(rule) = now.and_then(|parts| parts[part].as_deref()) {
                index.add(rule);
            }
        }
    }
    parts
}

/// Returns whether the handlers are those of a former snapshot, and rules call them with the same instances.
pub(super) fn call_the_same(rules: &Rules, handlers: &Handlers, former: &CompiledConfig) -> bool {
    let of_part = |part: &Option<Arc<RuleSpec>>| -> Vec<_> {
        let actions = part.iter().flat_map(|rule| &rule.actions);
        let calls =
            actions.flat_map(|action| action.instances.iter().map(|called| (&action.handler, called)));
        calls.map(|(handler, called)| (handler.clone(), Arc::as_ptr(&called.instance))).collect()
    };
    let calls = |rules: &Rules, name| {
        rules.get(name).map_or_else(Vec::new, |parts| parts.iter().map(of_part).collect())
    };
    handlers.is_same(&former.handlers)
        && rules.changed_since(&former.rules).all(|name| calls(rules, name) == calls(&former.rules, name))
}

/// Returns whether a reference of a rule may mean one of these names.
fn refers_to(rule: &Entry, names: &HashSet<&ResourceName>) -> bool {
    let Ok(Spec::Rule(spec)) = rule.spec.as_deref() else { return false };
    let has = |reference: &str, kind: &Kind| {
        let meanings = ResourceName::candidates(reference, kind, rule.name().namespace());
        meanings.iter().any(|name| names.contains(name))
    };
    spec.actions.iter().any(|action| {
        has(&action.handler, &Kind::Handler)
            || action.instances.iter().any(|instance| has(instance, &Kind::Instance))
    })
}

/// The resources that rules refer to.
struct Usable<'c> {
    set: &'c ConfigSet,
    handlers: &'c Handlers,
    instances: &'c Instances,
}

fn rule(
    resource: &Resource,
    read: &v1beta1::Rule,
    usable: &Usable<'_>,
    vocabulary: &Arc<Vocabulary>,
    faults: &mut Vec<ValidationError>,
) -> [Option<Arc<RuleSpec>>; 2] {
    let condition = read.r#match.trim().to_owned();
    let target = ("a condition", ValueType::Bool);
    let expression = match condition.as_str() {
        "" | "true" => None,
        text => match compile(resource, "match", text, vocabulary, target, faults) {
            None => return [None, None],
            compiled => compiled.map(Arc::new),
        },
    };
    let mut actions = Vec::new();
    for (index, action) in read.actions.iter().enumerate() {
        actions.extend(self::action(resource, index, action, usable, faults));
    }
    let settings = rule_settings(resource, faults);
    let resolved = actions.clone();
    let shadowed = take_shadowed(resource, &mut actions, &settings.shadow, faults);
    let headers = match settings.shadow {
        ShadowedActions::All => None,
        _ => operations(resource, read, &actions, vocabulary, faults),
    };
    if actions.is_empty() && headers.is_none() {
        if read.actions.is_empty()
            && read.request_header_operations.is_empty()
            && read.response_header_operations.is_empty()
        {
            faults.push(
                resource
                    .error("actions", "the rule does nothing: it has neither actions nor header operations"),
            );
        }
        return [None, None];
    }
    if let Some(expression) = &expression {
        faults.extend(of_expression(resource, "match", &condition, expression));
        warn_of_condition(resource, expression, vocabulary, &resolved, faults);
    }
    faults.extend(evasion::of_rule(resource, &condition, expression.as_deref(), &resolved, vocabulary));
    let denial = denial_form(resource, vocabulary, faults);
    let mut instances = resolved.iter().flat_map(|action| &action.instances);
    if let Some(form) = denial.as_ref().filter(|_| !instances.clone().any(InstanceSpec::is_check)) {
        let has_quota = instances.any(InstanceSpec::is_quota);
        let reason = match (has_quota, form.status.is_some() || form.redirect.is_some()) {
            (false, _) => Some("the rule has the form of a denial, and no action that denies"),
            (true, true) => Some(
                "the form has a status or a redirect, and the rule only quotas: write it without them, and set the status by \
                 rate_limited_status of Envoy's filter",
            ),
            (true, false) => None,
        };
        faults.extend(reason.map(|reason| resource.warning("", reason)));
    }
    let spec = |actions, headers| {
        Arc::new(RuleSpec {
            full_name: resource.name.to_string().into(),
            place: Arc::new(RulePlace {
                place: resource.origin.to_string().into(),
                namespace: resource.name.namespace().into(),
            }),
            language: language(resource),
            caching: settings.caching,
            denial: denial.clone(),
            condition: condition.as_str().into(),
            expression: expression.clone(),
            actions,
            headers,
        })
    };
    let has_effect = headers.is_some() || actions.iter().any(|action| !action.instances.is_empty());
    [has_effect.then(|| spec(actions, headers)), (!shadowed.is_empty()).then(|| spec(shadowed, None))]
}

/// Resolves an action. Unknown instances are dropped; without its handler or any instance, so is the action.
fn action(
    resource: &Resource,
    index: usize,
    action: &v1beta1::Action,
    usable: &Usable<'_>,
    faults: &mut Vec<ValidationError>,
) -> Option<ActionSpec> {
    let namespace = resource.name.namespace();
    let Usable { set, handlers, instances } = usable;
    let found = handlers.resolve(set, &Kind::Handler, &action.handler, namespace);
    let (handler, configured) =
        found.map_err(|why| faults.push(resource.error(&format!("actions[{index}].handler"), why))).ok()?;
    let mut compiled: Vec<InstanceSpec> = Vec::new();
    for (place, reference) in action.instances.iter().enumerate() {
        let field = format!("actions[{index}].instances[{place}]");
        let found = match instances.resolve(set, &Kind::Instance, reference, namespace) {
            Ok((_, found)) => found,
            Err(why) => {
                faults.push(resource.error(&field, why));
                continue;
            }
        };
        if compiled.iter().any(|known| known.instance.name == found.instance.name) {
            faults.push(
                resource.error(&field, format!("{} is named twice; it is sent once", found.instance.name)),
            );
            continue;
        }
        if !configured.serves(&found.instance.template) {
            let reason = format!(
                "the adapter of {handler} does not serve template {:?}, which {} is of",
                found.instance.template.name(),
                found.instance.name
            );
            faults.push(resource.error(&field, reason));
            continue;
        }
        let evaded = evasion::of_list(set, action, reference, namespace, found);
        faults.extend(evaded.filter(|fault| !faults.contains(fault)));
        compiled.push(found.clone());
    }
    if compiled.is_empty() {
        if action.instances.is_empty() {
            faults
                .push(resource.error(&format!("actions[{index}].instances"), "the action has no instances"));
        }
        return None;
    }
    Some(ActionSpec { name: action.name.clone(), handler: handler.clone(), instances: compiled })
}
