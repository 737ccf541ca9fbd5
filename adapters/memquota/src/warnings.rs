//! Probable mistakes of a valid configuration.

use mixer_adapter_core::{
    adapter::{InferredTypes, Violation},
    framework::suggest::suggest,
    prost_types,
};
use mixer_adapter_templates::Quota;

use super::{Params, config::params};

/// Returns limits without a duration, and overrides by dimensions that the instances do not have.
pub(super) fn of(params: &Params, types: &InferredTypes) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, quota) in params.quotas.iter().enumerate() {
        let path = format!("quotas[{index}]");
        found.extend(without_duration(&path, quota.max_amount, quota.valid_duration.as_ref()));
        for (index, given) in quota.overrides.iter().enumerate() {
            let path = format!("{path}.overrides[{index}]");
            found.extend(without_duration(&path, given.max_amount, given.valid_duration.as_ref()));
            for (instance, inferred) in types.of::<Quota>().filter(|(name, _)| is_for(params, quota, name)) {
                let unknown = given.dimensions.keys().filter(|name| !inferred.dimensions.contains_key(*name));
                found.extend(unknown.map(|name| {
                    let known: Vec<&str> = inferred.dimensions.keys().map(String::as_str).collect();
                    let hint = match suggest(name, known.iter().copied()) {
                        Some(similar) => format!("write {similar}"),
                        None => format!("add it to the instance, which has: {}", known.join(", ")),
                    };
                    let reason = format!("never matches: {instance} has no dimension {name}; {hint}");
                    Violation::new(format!("{path}.dimensions"), reason)
                }));
            }
        }
    }
    found
}

fn without_duration(path: &str, max: i64, valid: Option<&prost_types::Duration>) -> Option<Violation> {
    let is_zero = valid.is_none_or(|valid| valid.seconds == 0 && valid.nanos == 0);
    (is_zero && max > 0).then(|| {
        let reason = "without a duration amounts are in use until they are released, and requests release none; write 60s for a limit \
                      per minute";
        Violation::new(format!("{path}.valid_duration"), reason)
    })
}

/// Returns whether [`Limits::find`](super::limits::Limits::find) selects this quota for an instance.
fn is_for(params: &Params, quota: &params::Quota, instance: &str) -> bool {
    let short = instance.split('.').next().unwrap_or_default();
    quota.name == instance
        || (quota.name == short && params.quotas.iter().all(|known| known.name != instance))
}
