//! The condition of a rule, its field `match`.

use super::{instances::InstanceSpec, rule_spec::ActionSpec};
use crate::{
    attribute::Vocabulary,
    expression::{Expression, Required},
};
use mixer_adapter_config::{Resource, ValidationError};

/// Attributes that are missing unless the caller is authenticated or sends them: requests from outside of the mesh or
/// without credentials lack them.
const OF_THE_CALLER: [&str; 7] = [
    "api.",
    "origin.",
    "request.api_key",
    "request.auth.",
    "request.referer",
    "request.useragent",
    "source.",
];

/// Warns about conditions that are valid but probably not intended: a rule whose condition cannot be evaluated is
/// skipped (docs/behaviour/dispatch.md#conditions), and so is its check.
pub(super) fn warn_of_condition(
    resource: &Resource,
    condition: &Expression,
    vocabulary: &Vocabulary,
    actions: &[ActionSpec],
    faults: &mut Vec<ValidationError>,
) {
    let checks = actions.iter().flat_map(|action| &action.instances).any(InstanceSpec::is_check);
    let required = condition.nullability.required.iter();
    let missing: Vec<&Required> = required
        .filter(|required| OF_THE_CALLER.iter().any(|prefix| required.attribute.starts_with(prefix)))
        .collect();
    if let (true, Some(first)) = (checks, missing.first()) {
        let value_type = vocabulary.find(&first.attribute).map(|known| known.value_type).unwrap_or_default();
        let names: Vec<&str> = missing.iter().map(|required| &*required.attribute).collect();
        let reason = format!(
            "a request without {} is not checked: the condition cannot be evaluated, and Mixer skips the rule; give it a \
             value to fall back to, {}, or serve with --on-match-error closed",
            names.join(" or "),
            first.with_fallback(value_type),
        );
        faults.push(resource.warning("match", reason));
    }
}
