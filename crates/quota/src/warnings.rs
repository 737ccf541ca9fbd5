//! Probable mistakes of a valid configuration.

use mixer_adapter_core::{adapter::Faults, framework::suggest::suggest, prost_types};
use mixer_adapter_templates::Quota;

use super::params::QuotaParams;

/// Warns of limits without a duration, and overrides by dimensions that the instances do not have.
pub(crate) fn add<E>(quotas: &[QuotaParams<'_, E>], faults: &mut Faults<'_>) {
    for (index, quota) in quotas.iter().enumerate() {
        let path = format!("quotas[{index}]");
        warn_without_duration(&path, quota.max_amount, quota.valid_duration.as_ref(), faults);
        for (index, given) in quota.overrides.iter().enumerate() {
            let path = format!("{path}.overrides[{index}]");
            warn_without_duration(&path, given.max_amount, given.valid_duration.as_ref(), faults);
            for (instance, inferred) in faults.types().of::<Quota>() {
                if !is_for(quotas, quota.name, instance) {
                    continue;
                }
                for name in given.dimensions.keys().filter(|name| !inferred.dimensions.contains_key(*name)) {
                    let known: Vec<&str> = inferred.dimensions.keys().map(String::as_str).collect();
                    let hint = match suggest(name, known.iter().copied()) {
                        Some(similar) => format!("write {similar}"),
                        None => format!("add it to the instance, which has: {}", known.join(", ")),
                    };
                    let reason = format!("never matches: {instance} has no dimension {name}; {hint}");
                    faults.warn(format!("{path}.dimensions"), reason);
                }
            }
        }
    }
}

fn warn_without_duration(
    path: &str,
    max: i64,
    valid: Option<&prost_types::Duration>,
    faults: &mut Faults<'_>,
) {
    if max > 0 && valid.is_none_or(|valid| valid.seconds == 0 && valid.nanos == 0) {
        let reason = "without a duration amounts are in use until they are released, and requests release none; write 60s for a limit \
                      per minute";
        faults.warn(format!("{path}.valid_duration"), reason);
    }
}

/// Returns whether [`Limits::find`](super::limits::Limits::find) selects this quota for an instance.
fn is_for<E>(quotas: &[QuotaParams<'_, E>], name: &str, instance: &str) -> bool {
    let short = instance.split('.').next().unwrap_or_default();
    name == instance || (name == short && quotas.iter().all(|known| known.name != instance))
}
