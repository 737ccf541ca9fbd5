//! Resources without effect: handlers and instances that no rule uses, and rules that never apply.

use std::collections::BTreeSet;

use super::index::language;
use crate::expression::{Language, Requirements};
use mixer_adapter_config::{ConfigSet, Kind, Resource, ResourceName, Spec, ValidationError};
use mixer_adapter_core::framework::suggest::suggest;

/// Returns warnings about the resources of a set that have no effect, although they are valid.
pub fn unused(set: &ConfigSet, default_namespace: &str) -> Vec<ValidationError> {
    let mut used: BTreeSet<&ResourceName> = BTreeSet::new();
    let mut faults = Vec::new();
    for entry in set.of_role(Kind::Rule) {
        let Ok(Spec::Rule(rule)) = entry.spec.as_deref() else { continue };
        let namespace = entry.name().namespace();
        for action in &rule.actions {
            let handler = set.resolve(&Kind::Handler, &action.handler, namespace).ok();
            let instances =
                action.instances.iter().filter_map(|name| set.resolve(&Kind::Instance, name, namespace).ok());
            used.extend(handler.into_iter().chain(instances).map(|entry| entry.name()));
        }
        faults.extend(never_applies(&entry.resource, &rule.r#match, default_namespace));
    }
    for kind in [Kind::Handler, Kind::Instance] {
        let unused = set.of_role(kind.clone()).filter(|entry| !used.contains(entry.name()));
        faults.extend(unused.map(|entry| entry.resource.warning("", format!("no rule uses this {kind}"))));
    }
    faults
}

fn never_applies(rule: &Resource, condition: &str, default_namespace: &str) -> Option<ValidationError> {
    let requirements = match language(rule) {
        Language::Cexl => Requirements::of(condition.trim()),
        Language::Cel | Language::Compat => Requirements::default(),
    };
    if let Some(why) = requirements.contradiction() {
        return Some(rule.warning("match", format!("the rule never applies: {why}")));
    }
    let namespace = rule.name.namespace();
    if namespace == default_namespace {
        return None;
    }
    if suggest(namespace, [default_namespace]).is_some() {
        let reason = format!(
            "the rule applies only to requests of namespace {namespace}; did you mean {default_namespace}, whose rules \
             apply to all requests?"
        );
        return Some(rule.warning("", reason));
    }
    // Determined by the namespace of the destination or, if the client's proxy reports, of the source.
    let may_apply = [("inbound", "destination.namespace"), ("outbound", "source.namespace")].iter().any(
        |(kind, attribute)| {
            requirements.equals("context.reporter.kind").all(|required| required == *kind)
                && requirements.equals(attribute).all(|required| required == namespace)
        },
    );
    (!may_apply).then(|| {
        let reason = format!(
            "the rule never applies: rules of namespace {namespace} apply only to requests of that namespace, which the \
             condition excludes; move the rule to {default_namespace}"
        );
        rule.warning("match", reason)
    })
}
