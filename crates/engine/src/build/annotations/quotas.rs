//! Annotations of quotas (docs/envoy/rate-limits.md#settings-of-a-quota).

use std::time::Duration;

use super::Annotations;
use crate::quota_settings::{QuotaMode, QuotaSettings};
use mixer_adapter_config::{Resource, ValidationError};
use mixer_adapter_core::{adapter::LimitOverride, template::Variety, value::parse_duration};

const MODE: &str = "mixer-adapter/rate-limit-mode";
const ALL_OR_NOTHING: &str = "mixer-adapter/all-or-nothing";
const MAX_LIMIT: &str = "mixer-adapter/max-limit";
const DIMENSIONS: &str = "mixer-adapter/dimensions-in-metadata";

/// Returns the settings of an instance of a template.
///
/// # Errors
/// An annotation has no effect.
pub(in super::super) fn quota_settings(
    resource: &Resource,
    variety: Variety,
) -> Result<QuotaSettings, Vec<ValidationError>> {
    if variety != Variety::Quota {
        let errors = Annotations::new(resource, "instances other than quotas", &[]).errors;
        return if errors.is_empty() { Ok(QuotaSettings::default()) } else { Err(errors) };
    }
    let known = &[MODE, ALL_OR_NOTHING, MAX_LIMIT, DIMENSIONS];
    let mut annotations = Annotations::new(resource, "quotas", known);
    let settings = QuotaSettings {
        mode: annotations.read(MODE, "enforce, soft or shadow", mode).unwrap_or_default(),
        all_or_nothing: annotations.read(ALL_OR_NOTHING, SWITCH, switch).unwrap_or_default(),
        max_limit: annotations.read(
            MAX_LIMIT,
            "an amount and a window of at least 1s, such as 1000/1m",
            rate,
        ),
        dimensions_in_metadata: annotations.read(DIMENSIONS, SWITCH, switch).unwrap_or_default(),
    };
    if annotations.errors.is_empty() { Ok(settings) } else { Err(annotations.errors) }
}

fn mode(value: &str) -> Option<QuotaMode> {
    match value {
        "enforce" => Some(QuotaMode::Enforce),
        "soft" => Some(QuotaMode::Soft),
        "shadow" => Some(QuotaMode::Shadow),
        _ => None,
    }
}

const SWITCH: &str = "\"true\" or \"false\"";

fn switch(value: &str) -> Option<bool> {
    value.parse().ok()
}

/// Parses an amount and a window: `1000/1m`.
fn rate(value: &str) -> Option<LimitOverride> {
    let (amount, window) = value.split_once('/')?;
    let max_amount = amount.trim().parse::<i64>().ok().filter(|amount| *amount >= 0)?;
    let nanos = parse_duration(window.trim()).filter(|nanos| *nanos >= 1_000_000_000)?;
    Some(LimitOverride { max_amount, window: Duration::from_nanos(nanos.unsigned_abs()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mixer_adapter_config::{Collection, Kind, ResourceName};

    fn settings(given: &[(&str, &str)], variety: Variety) -> Result<QuotaSettings, Vec<ValidationError>> {
        let name = ResourceName::new("q", Kind::Instance, "ns");
        let collection = Collection::of("", &Kind::Instance);
        let mut resource = Resource::new(name, collection, serde_json::Value::Null, "test");
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        resource.annotations = given.collect();
        quota_settings(&resource, variety)
    }

    #[test]
    fn annotations_are_settings() {
        let given = [
            ("mixer-adapter/rate-limit-mode", "shadow"),
            ("mixer-adapter/all-or-nothing", "true"),
            ("mixer-adapter/max-limit", "1000/1m"),
            ("mixer-adapter/dimensions-in-metadata", "true"),
            ("example.com/owner", "anybody"),
        ];
        let expected = QuotaSettings {
            mode: QuotaMode::Shadow,
            all_or_nothing: true,
            max_limit: Some(LimitOverride { max_amount: 1000, window: Duration::from_secs(60) }),
            dimensions_in_metadata: true,
        };
        assert_eq!(settings(&given, Variety::Quota), Ok(expected));
        assert_eq!(settings(&[], Variety::Check), Ok(QuotaSettings::default()));
    }

    #[test]
    fn an_annotation_that_would_have_no_effect_is_an_error() {
        for (name, value, variety, error) in [
            (
                "mixer-adapter/mode",
                "soft",
                Variety::Quota,
                "unknown annotation of quotas; write one of mixer-adapter/rate-limit-mode, \
                 mixer-adapter/all-or-nothing, mixer-adapter/max-limit, mixer-adapter/dimensions-in-metadata",
            ),
            (
                "mixer-adapter/rate-limit-mode",
                "off",
                Variety::Quota,
                "the value is not valid; write enforce, soft or shadow",
            ),
            (
                "mixer-adapter/all-or-nothing",
                "yes",
                Variety::Quota,
                "the value is not valid; write \"true\" or \"false\"",
            ),
            (
                "mixer-adapter/all-or-nothing",
                "true",
                Variety::Check,
                "unknown annotation of instances other than quotas",
            ),
        ] {
            let errors = settings(&[(name, value)], variety).err().unwrap_or_default();
            let errors: Vec<_> = errors.iter().map(|fault| (&*fault.field, &*fault.reason)).collect();
            assert_eq!(errors, [(&*format!("metadata.annotations[{name:?}]"), error)]);
        }
        for rate in ["", "1000", "1000/", "1000/0s", "1000/500ms", "-1/1m", "1m/1000", "1/-1m"] {
            let given = [("mixer-adapter/max-limit", rate)];
            let errors = settings(&given, Variety::Quota).err().unwrap_or_default();
            let is_of_rate = |fault: &ValidationError| fault.reason.contains("such as 1000/1m");
            assert!(errors.len() == 1 && errors.iter().all(is_of_rate), "{rate}");
        }
    }
}
