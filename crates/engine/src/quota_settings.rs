//! Settings of a quota instance behind Envoy, by annotations (docs/envoy/rate-limits.md#settings-of-a-quota).

use mixer_adapter_core::{adapter::LimitOverride, framework::setters};

/// The settings of a quota, which apply to rate limits of Envoy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaSettings {
    /// The mode past the limit.
    pub mode: QuotaMode,
    /// Whether a request takes nothing from this quota if it is over the limit of another one.
    pub all_or_nothing: bool,
    /// The highest rate of a limit that a caller sets; without it such limits are ignored.
    pub max_limit: Option<LimitOverride>,
    /// Whether checks put the dimensions into the metadata of their answers.
    pub dimensions_in_metadata: bool,
}

setters!(QuotaSettings { mode: QuotaMode, all_or_nothing: bool });

/// The treatment of requests past the limit of a quota. Of several quotas past their limits, the lowest mode decides.
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

impl QuotaSettings {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limit(max_amount: i64, seconds: u64) -> LimitOverride {
        LimitOverride { max_amount, window: Duration::from_secs(seconds) }
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
