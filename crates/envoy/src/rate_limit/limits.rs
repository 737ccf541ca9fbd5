//! Limits in the units of Envoy's messages.

use std::time::Duration;

use mixer_adapter_core::{
    adapter::LimitOverride, proto::istio::mixer::adapter::model::v1beta1::quota_result::Limit,
};

use crate::proto::envoy::{
    extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride,
    service::ratelimit::v3::rate_limit_response::{DescriptorStatus, RateLimit, rate_limit::Unit},
};

/// The seconds of the units, the longest first.
const UNITS: [(i64, Unit); 7] = [
    (31_536_000, Unit::Year),
    (2_592_000, Unit::Month),
    (604_800, Unit::Week),
    (86_400, Unit::Day),
    (3_600, Unit::Hour),
    (60, Unit::Minute),
    (1, Unit::Second),
];

/// Sets the state of a limit in a status, from which Envoy makes `x-ratelimit-...` and `retry-after`.
pub(super) fn set_limit(status: &mut DescriptorStatus, limit: &Limit) {
    status.current_limit = current_limit(limit);
    status.limit_remaining = clamped(limit.remaining);
    status.duration_until_reset = limit.reset_after.map(in_seconds);
}

/// Rounds up to whole seconds: Envoy truncates, and after a shorter time the limit still applies.
fn in_seconds(duration: prost_types::Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: duration.seconds.saturating_add(i64::from(duration.nanos > 0)),
        nanos: 0,
    }
}

/// Returns a limit in the longest unit that divides its window; `None` without a window.
fn current_limit(limit: &Limit) -> Option<RateLimit> {
    let window = in_seconds(limit.window?).seconds;
    let (seconds, unit) = UNITS.into_iter().find(|(seconds, _)| window > 0 && window % seconds == 0)?;
    let multiplier = clamped(window / seconds);
    Some(RateLimit {
        name: String::new(),
        requests_per_unit: clamped(limit.max_amount),
        unit: unit.into(),
        unit_multiplier: (multiplier > 1).then_some(multiplier),
    })
}

fn clamped(amount: i64) -> u32 {
    u32::try_from(amount.max(0)).unwrap_or(u32::MAX)
}

/// Returns the limit of a descriptor; `None` for a unit that is not known.
pub(super) fn limit_override(limit: &RateLimitOverride) -> Option<LimitOverride> {
    // `RateLimitUnit` has the numbers of `Unit`.
    let unit = limit.unit() as i32;
    let (seconds, _) = UNITS.into_iter().find(|(_, known)| *known as i32 == unit)?;
    let count = limit.unit_multiplier.unwrap_or(1).max(1);
    let window = Duration::from_secs(seconds.unsigned_abs() * u64::from(count));
    Some(LimitOverride { max_amount: limit.requests_per_unit.into(), window })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::r#type::v3::RateLimitUnit;

    fn limited(window: i64, reset_after: (i64, i32)) -> Limit {
        let (seconds, nanos) = reset_after;
        Limit {
            max_amount: 10,
            remaining: 9,
            window: Some(prost_types::Duration { seconds: window, nanos: 0 }),
            reset_after: Some(prost_types::Duration { seconds, nanos }),
        }
    }

    #[test]
    fn a_status_has_the_limit_the_rest_and_the_time_until_a_reset_rounded_up() {
        let mut status = DescriptorStatus::default();
        set_limit(&mut status, &limited(60, (30, 1)));
        let limit = status.current_limit.unwrap_or_default();
        assert_eq!((limit.requests_per_unit, limit.unit(), limit.unit_multiplier), (10, Unit::Minute, None));
        assert_eq!(status.limit_remaining, 9);
        assert_eq!(status.duration_until_reset.unwrap_or_default().seconds, 31);
    }

    #[test]
    fn a_window_is_a_multiple_of_the_longest_unit() {
        for (window, unit, multiplier) in [
            (1, Unit::Second, None),
            (90, Unit::Second, Some(90)),
            (300, Unit::Minute, Some(5)),
            (3_600, Unit::Hour, None),
            (172_800, Unit::Day, Some(2)),
            (604_800, Unit::Week, None),
            (31_536_000, Unit::Year, None),
        ] {
            let limit = current_limit(&limited(window, (1, 0))).unwrap_or_default();
            assert_eq!((limit.unit(), limit.unit_multiplier), (unit, multiplier), "{window}");
        }
        assert_eq!(current_limit(&Limit { window: None, ..limited(1, (1, 0)) }), None);
    }

    #[test]
    fn a_limit_of_a_descriptor_is_an_amount_in_a_window() {
        for (unit, multiplier, seconds) in [
            (RateLimitUnit::Second, None, 1),
            (RateLimitUnit::Minute, Some(5), 300),
            (RateLimitUnit::Hour, Some(0), 3_600),
            (RateLimitUnit::Month, None, 2_592_000),
            (RateLimitUnit::Year, Some(u32::MAX), 31_536_000 * u64::from(u32::MAX)),
        ] {
            let given =
                RateLimitOverride { requests_per_unit: 7, unit: unit.into(), unit_multiplier: multiplier };
            let window = Duration::from_secs(seconds);
            assert_eq!(limit_override(&given), Some(LimitOverride { max_amount: 7, window }), "{unit:?}");
        }
        let unknown = RateLimitOverride { unit: 99, ..RateLimitOverride::default() };
        assert_eq!(limit_override(&unknown), None);
    }
}
