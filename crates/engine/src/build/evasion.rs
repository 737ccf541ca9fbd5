//! Warnings about checks that a client evades with another spelling of the request.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use super::{faults::excerpt, index::language, instances::InstanceSpec, rule_spec::ActionSpec};
use crate::{
    attribute::Vocabulary,
    expression::{ClientText, Expression, Language, avoidable},
};
use mixer_adapter_config::{ConfigSet, Kind, Resource, Spec, ValidationError, proto::istio::policy::v1beta1};

/// Returns the warnings of a rule whose condition is `text`.
pub(super) fn of_rule(
    resource: &Resource,
    text: &str,
    condition: Option<&Expression>,
    actions: &[ActionSpec],
    vocabulary: &Vocabulary,
) -> Vec<ValidationError> {
    let instances: Vec<&InstanceSpec> =
        actions.iter().flat_map(|action| &action.instances).filter(|found| found.is_check()).collect();
    if instances.is_empty() {
        return Vec::new();
    }
    let comparisons = match language(resource) {
        Language::Cexl | Language::Compat => avoidable(text),
        Language::Cel => Vec::new(),
    };
    let comparisons = comparisons.into_iter().map(|found| {
        let warning = resource.warning("match", format!("{}, and is not checked", found.reason));
        warning.with_help(found.help).in_excerpt(excerpt(text, found.span))
    });
    let of_instances = instances.iter().flat_map(|found| found.instance.expressions());
    let expressions = condition.into_iter().chain(of_instances.map(|(_, _, expression)| expression));
    let slots: BTreeSet<u32> = expressions.flat_map(Expression::slots).collect();
    let [reads_body, reads_truncated] = ["request.body", "request.body_truncated"]
        .map(|name| vocabulary.find(name).is_some_and(|attribute| slots.contains(&attribute.slot)));
    let body = (reads_body && !reads_truncated).then(|| {
        let reason = "reads request.body, which is a part of a longer body if Envoy has allow_partial_message: true: padding hides \
                      the rest";
        let help = "keep the `allow_partial_message: false` of `envoy-config`, or read request.body_truncated, too";
        resource.warning("", reason).with_help(help)
    });
    comparisons.chain(body).collect()
}

/// Returns a warning about an instance whose value is looked up in the list of a handler.
pub(super) fn of_list(
    set: &ConfigSet,
    action: &v1beta1::Action,
    reference: &str,
    namespace: &str,
    found: &InstanceSpec,
) -> Option<ValidationError> {
    let handler = set.resolve(&Kind::Handler, &action.handler, namespace).ok()?;
    let Ok(Spec::Handler(handler)) = handler.spec.as_deref() else { return None };
    let resource = &set.resolve(&Kind::Instance, reference, namespace).ok()?.resource;
    if found.instance.template.name() != "listentry" || language(resource) == Language::Cel {
        return None;
    }
    let list = handler.params.clone().unwrap_or_default();
    let (_, text, _) = found.instance.expressions().find(|(path, _, _)| *path == "value")?;
    let read = ClientText::read_by(text)?;
    let is_denied = list.get("blacklist") == Some(&Json::Bool(true));
    if !is_of_whole_texts(&list) || (read != ClientText::Path && !is_denied) {
        return None;
    }
    let help = match read {
        ClientText::Path => "write `request.url_path | request.path | \"/\"`",
        ClientText::QueryParameter | ClientText::QueryValues | ClientText::Header => {
            "list what is allowed, without `blacklist: true`"
        }
    };
    Some(resource.warning("params.value", read.reason()).with_help(help))
}

/// Returns whether the entries of a list are texts or patterns that apply to the end of a value.
fn is_of_whole_texts(list: &Map<String, Json>) -> bool {
    let entry_type = list.get("entryType").or_else(|| list.get("entry_type"));
    let mut entries = list.get("overrides").and_then(Json::as_array).into_iter().flatten();
    match entry_type.and_then(Json::as_str) {
        None | Some("STRINGS" | "CASE_INSENSITIVE_STRINGS") => true,
        Some("REGEX") => entries.any(|entry| entry.as_str().is_some_and(|entry| entry.ends_with('$'))),
        Some(_) => false,
    }
}
