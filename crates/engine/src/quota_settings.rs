//! Settings of a quota instance behind Envoy, from its annotations (docs/envoy.md#settings-of-a-quota).

use std::{collections::BTreeMap, time::Duration};

use mixer_adapter_core::{adapter::LimitOverride, value::parse_duration};

/// The prefix of this project's annotations.
const PREFIX: &str = "mixer-adapter/";

/// The settings of a quota, which apply to rate limits of Envoy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaSettings {
    /// What happens past the limit.
    pub mode: QuotaMode,
    /// Whether a request takes nothing from this quota if it is over the limit of another one.
    pub all_or_nothing: bool,
    /// The highest rate of a limit that a caller sets; without it such limits are ignored.
    pub max_limit: Option<LimitOverride>,
    /// Whether checks put the dimensions into the metadata of their answers.
    pub dimensions_in_metadata: bool,
}

/// What happens past the limit of a quota. Of several quotas past their limits, the lowest mode decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaMode {
    /// The request is refused.
    #[default]
    Enforce,
    /// The request passes, and its metadata names the quota.
    Soft,
    /// The request passes, and only metrics and metadata show the quota: a trial of a limit.
    Shadow,
}

/// An annotation that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnnotationError {
    #[error("there is no annotation {PREFIX}{name}; those of a quota are {known}", known = known())]
    Unknown { name: String },
    #[error("annotation {PREFIX}{name}: {value:?} is not valid; write {expected}")]
    Value { name: &'static str, value: String, expected: &'static str },
    #[error("annotation {PREFIX}{0} applies to instances of quotas only")]
    NoQuota(String),
}

const MODE: &str = "rate-limit-mode";
const ALL_OR_NOTHING: &str = "all-or-nothing";
const MAX_LIMIT: &str = "max-limit";
const DIMENSIONS: &str = "dimensions-in-metadata";

fn known() -> String {
    [MODE, ALL_OR_NOTHING, MAX_LIMIT, DIMENSIONS].map(|name| format!("{PREFIX}{name}")).join(", ")
}

impl QuotaSettings {
    /// Reads the annotations of an instance.
    ///
    /// # Errors
    /// One of this project's annotations is unknown or has an invalid value, or the instance is not of a quota.
    pub(crate) fn read(
        annotations: &BTreeMap<String, String>,
        is_quota: bool,
    ) -> Result<Self, AnnotationError> {
        let mut settings = Self::default();
        for (name, value) in annotations {
            let Some(name) = name.strip_prefix(PREFIX) else { continue };
            if !is_quota {
                return Err(AnnotationError::NoQuota(name.to_owned()));
            }
            match name {
                MODE => settings.mode = mode(value)?,
                ALL_OR_NOTHING => settings.all_or_nothing = switch(ALL_OR_NOTHING, value)?,
                MAX_LIMIT => settings.max_limit = Some(rate(value)?),
                DIMENSIONS => settings.dimensions_in_metadata = switch(DIMENSIONS, value)?,
                _ => return Err(AnnotationError::Unknown { name: name.to_owned() }),
            }
        }
        Ok(settings)
    }

    /// Returns the limit that a caller may set in place of the configured one: the given one up to the highest rate, over the
    /// given window.
    pub(crate) fn bounded(&self, limit: LimitOverride) -> Option<LimitOverride> {
        let max = self.max_limit?;
        let most = u128::try_from(max.max_amount).unwrap_or(0).saturating_mul(limit.window.as_nanos())
            / max.window.as_nanos().max(1);
        let max_amount = limit.max_amount.min(i64::try_from(most).unwrap_or(i64::MAX));
        Some(LimitOverride { max_amount, ..limit })
    }
}

fn mode(value: &str) -> Result<QuotaMode, AnnotationError> {
    match value {
        "enforce" => Ok(QuotaMode::Enforce),
        "soft" => Ok(QuotaMode::Soft),
        "shadow" => Ok(QuotaMode::Shadow),
        _ => Err(AnnotationError::Value {
            name: MODE,
            value: value.to_owned(),
            expected: "enforce, soft or shadow",
        }),
    }
}

fn switch(name: &'static str, value: &str) -> Result<bool, AnnotationError> {
    value.parse().map_err(|_| AnnotationError::Value {
        name,
        value: value.to_owned(),
        expected: "\"true\" or \"false\"",
    })
}

/// Parses an amount and a window: `1000/1m`.
fn rate(value: &str) -> Result<LimitOverride, AnnotationError> {
    let parsed = value.split_once('/').and_then(|(amount, window)| {
        let max_amount = amount.trim().parse::<i64>().ok().filter(|amount| *amount >= 0)?;
        let nanos = parse_duration(window.trim()).filter(|nanos| *nanos >= 1_000_000_000)?;
        Some(LimitOverride { max_amount, window: Duration::from_nanos(nanos.unsigned_abs()) })
    });
    parsed.ok_or_else(|| AnnotationError::Value {
        name: MAX_LIMIT,
        value: value.to_owned(),
        expected: "an amount and a window of at least 1s, such as 1000/1m",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(annotations: &[(&str, &str)], is_quota: bool) -> Result<QuotaSettings, String> {
        let annotations = annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        QuotaSettings::read(&annotations.collect(), is_quota).map_err(|error| error.to_string())
    }

    fn limit(max_amount: i64, seconds: u64) -> LimitOverride {
        LimitOverride { max_amount, window: Duration::from_secs(seconds) }
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
        let settings = QuotaSettings {
            mode: QuotaMode::Shadow,
            all_or_nothing: true,
            max_limit: Some(limit(1000, 60)),
            dimensions_in_metadata: true,
        };
        assert_eq!(read(&given, true), Ok(settings));
        assert_eq!(read(&[], false), Ok(QuotaSettings::default()));
    }

    #[test]
    fn an_annotation_that_would_have_no_effect_is_an_error() {
        for (name, value, is_quota, error) in [
            (
                "mixer-adapter/mode",
                "soft",
                true,
                "there is no annotation mixer-adapter/mode; those of a quota are mixer-adapter/rate-limit-mode, \
                 mixer-adapter/all-or-nothing, mixer-adapter/max-limit, mixer-adapter/dimensions-in-metadata",
            ),
            (
                "mixer-adapter/rate-limit-mode",
                "off",
                true,
                "annotation mixer-adapter/rate-limit-mode: \"off\" is not valid; write enforce, soft or shadow",
            ),
            (
                "mixer-adapter/all-or-nothing",
                "yes",
                true,
                "annotation mixer-adapter/all-or-nothing: \"yes\" is not valid; write \"true\" or \"false\"",
            ),
            (
                "mixer-adapter/all-or-nothing",
                "true",
                false,
                "annotation mixer-adapter/all-or-nothing applies to instances of quotas only",
            ),
        ] {
            assert_eq!(read(&[(name, value)], is_quota), Err(error.to_owned()), "{name}");
        }
        for rate in ["", "1000", "1000/", "1000/0s", "1000/500ms", "-1/1m", "1m/1000", "1/-1m"] {
            let error = read(&[("mixer-adapter/max-limit", rate)], true);
            assert!(error.is_err_and(|error| error.contains("such as 1000/1m")), "{rate}");
        }
    }

    #[test]
    fn a_limit_of_a_caller_is_used_up_to_the_highest_rate_over_its_own_window() {
        let settings = QuotaSettings { max_limit: Some(limit(1000, 60)), ..QuotaSettings::default() };
        for (given, used) in [
            (limit(500, 60), limit(500, 60)),
            (limit(5000, 60), limit(1000, 60)),
            (limit(100, 1), limit(16, 1)),
            (limit(100_000, 3600), limit(60_000, 3600)),
            (limit(0, 60), limit(0, 60)),
            (limit(i64::MAX, u64::MAX), limit(i64::MAX, u64::MAX)),
        ] {
            assert_eq!(settings.bounded(given), Some(used), "{given:?}");
        }
        assert_eq!(QuotaSettings::default().bounded(limit(1, 1)), None);
    }
}
