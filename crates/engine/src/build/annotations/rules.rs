//! Annotations of rules: limits on the reuse of answers, and actions in the shadow.

use std::time::Duration;

use super::Annotations;
use crate::cache::CachePolicy;
use mixer_adapter_config::{Resource, ValidationError, annotations::DENIAL};
use mixer_adapter_core::value::parse_duration;

/// The maximum duration of validity of answers of the rule.
const MAX_AGE: &str = "mixer-adapter/cache-max-age";

/// The time after its expiry during which an answer of the rule may be used while a backend is down.
const STALE_IF_ERROR: &str = "mixer-adapter/cache-stale-if-error";

/// Maximum of [`STALE_IF_ERROR`].
const MAX_STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether the whole rule is in the shadow.
const MODE: &str = "mixer-adapter/mode";

/// The names of the actions in the shadow.
pub(in super::super) const SHADOW_ACTIONS: &str = "mixer-adapter/shadow-actions";

/// The settings of a rule.
#[derive(Debug)]
pub(in super::super) struct RuleSettings {
    pub(in super::super) caching: CachePolicy,
    pub(in super::super) shadow: ShadowedActions,
}

/// The actions of a rule that are in the shadow.
#[derive(Debug, Default)]
pub(in super::super) enum ShadowedActions {
    #[default]
    None,
    /// All of them, and the header operations.
    All,
    /// Those with these names.
    Named(Vec<String>),
}

/// Returns the settings of a rule. If an annotation is not valid, answers are not reused, and all actions count.
pub(in super::super) fn rule_settings(resource: &Resource, found: &mut Vec<ValidationError>) -> RuleSettings {
    let known = &[MAX_AGE, STALE_IF_ERROR, DENIAL, MODE, SHADOW_ACTIONS];
    let mut annotations = Annotations::new(resource, "rules", known);
    let max_age = annotations.read(MAX_AGE, "a duration like \"300ms\", \"5s\" or \"1m30s\"", duration);
    let stale_if_error =
        annotations.read(STALE_IF_ERROR, "a duration of at most 24 hours, like \"30s\" or \"5m\"", |text| {
            duration(text).filter(|duration| *duration <= MAX_STALE)
        });
    let is_shadow = annotations.read(MODE, "enforce or shadow", |text| match text {
        "enforce" => Some(false),
        "shadow" => Some(true),
        _ => None,
    });
    let named = annotations.read(SHADOW_ACTIONS, "the names of actions, separated by commas", |text| {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        names.iter().all(|name| !name.is_empty()).then_some(names)
    });
    if !annotations.errors.is_empty() {
        found.extend(annotations.errors);
        let caching = CachePolicy { max_age: Duration::ZERO, stale_if_error: Duration::ZERO };
        return RuleSettings { caching, shadow: ShadowedActions::None };
    }
    let caching = CachePolicy {
        max_age: max_age.unwrap_or(CachePolicy::OF_RULE.max_age),
        stale_if_error: stale_if_error.unwrap_or(CachePolicy::OF_RULE.stale_if_error),
    };
    let shadow = match is_shadow {
        Some(true) => ShadowedActions::All,
        _ => named.map_or(ShadowedActions::None, ShadowedActions::Named),
    };
    RuleSettings { caching, shadow }
}

fn duration(text: &str) -> Option<Duration> {
    let nanos = parse_duration(text).and_then(|nanos| u64::try_from(nanos).ok());
    nanos.map(Duration::from_nanos)
}
