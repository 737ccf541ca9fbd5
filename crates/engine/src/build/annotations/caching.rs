//! Annotations of rules that limit the reuse of answers.

use std::time::Duration;

use super::{Annotations, faults};
use crate::cache::CachePolicy;
use mixer_adapter_config::{Resource, ValidationError, annotations::DENIAL};
use mixer_adapter_core::value::parse_duration;

/// The maximum duration of validity of answers of the rule.
const MAX_AGE: &str = "mixer-adapter/cache-max-age";

/// The time after its expiry during which an answer of the rule may be used while a backend is down.
const STALE_IF_ERROR: &str = "mixer-adapter/cache-stale-if-error";

/// Maximum of [`STALE_IF_ERROR`].
const MAX_STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the policy of a rule. If an annotation is not valid, answers are not reused.
pub(in super::super) fn cache_policy(resource: &Resource, found: &mut Vec<ValidationError>) -> CachePolicy {
    let mut annotations =
        Annotations::new(&resource.annotations, "rules", &[MAX_AGE, STALE_IF_ERROR, DENIAL]);
    let max_age = annotations.read(MAX_AGE, "a duration like \"300ms\", \"5s\" or \"1m30s\"", duration);
    let stale_if_error =
        annotations.read(STALE_IF_ERROR, "a duration of at most 24 hours, like \"30s\" or \"5m\"", |text| {
            duration(text).filter(|duration| *duration <= MAX_STALE)
        });
    if !annotations.errors.is_empty() {
        found.extend(faults(resource, annotations.errors));
        return CachePolicy { max_age: Duration::ZERO, stale_if_error: Duration::ZERO };
    }
    CachePolicy {
        max_age: max_age.unwrap_or(CachePolicy::OF_RULE.max_age),
        stale_if_error: stale_if_error.unwrap_or(CachePolicy::OF_RULE.stale_if_error),
    }
}

fn duration(text: &str) -> Option<Duration> {
    let nanos = parse_duration(text).and_then(|nanos| u64::try_from(nanos).ok());
    nanos.map(Duration::from_nanos)
}
