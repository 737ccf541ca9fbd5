use std::time::Duration;

use prost::Message;

use super::Code;
use crate::proto::{Any, CheckResult, Status, istio::policy::v1beta1::DirectHttpResponse};

/// The answer of a check: allowed or denied, and for how long and how many uses a caller may keep it.
///
/// Unless said otherwise an answer holds for 5 s or 1000 uses, whichever ends first.
///
/// ```
/// use mixer_adapter_core::{Check, Code};
/// use std::time::Duration;
/// Check::allow().for_(Duration::from_secs(60)).uses(100);
/// Check::deny(Code::PermissionDenied, "not on the list").no_cache();
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    status: Status,
    valid_duration: Duration,
    valid_use_count: i32,
}

/// How long an answer holds unless the handler says otherwise.
const DEFAULT_DURATION: Duration = Duration::from_secs(5);
/// How many uses an answer holds for unless the handler says otherwise.
const DEFAULT_USES: i32 = 1000;
/// With a duration of 0 s, the only way to tell every Mixer not to keep an answer
/// (docs/behaviour/adapter-calls.md#validity-of-a-check).
const NOT_CACHED: i32 = -1;

impl Check {
    /// The request may go on.
    pub fn allow() -> Self {
        Self::with_status(Status::default())
    }

    /// The request is refused, for the reason that its sender reads.
    pub fn deny(code: Code, why: impl Into<String>) -> Self {
        Self::with_status(Status { code: code as i32, message: why.into(), details: Vec::new() })
    }

    /// The answer that a configured status stands for: code 0 allows, any other denies, also one that
    /// `google.rpc.Code` does not know (Mixer passes those on).
    pub fn from_status(status: Status) -> Self {
        Self::with_status(status)
    }

    /// Allowed, with a duration and a use count of zero, which a Mixer reads as "this adapter has no opinion": it
    /// replaces them by one minute and 10000 uses of its own, whatever other adapters said
    /// (docs/behaviour/adapter-calls.md#validity-of-a-check).
    pub fn no_opinion() -> Self {
        Self { status: Status::default(), valid_duration: Duration::ZERO, valid_use_count: 0 }
    }

    /// How long the answer holds.
    #[must_use]
    pub fn for_(mut self, duration: Duration) -> Self {
        self.valid_duration = duration;
        self.uncached_unless_valid()
    }

    /// How many requests the answer may serve; 0 is [`no_cache`](Self::no_cache).
    #[must_use]
    pub fn uses(mut self, count: u32) -> Self {
        self.valid_use_count = i32::try_from(count).unwrap_or(i32::MAX);
        self.uncached_unless_valid()
    }

    /// The answer holds for this request only.
    #[must_use]
    pub fn no_cache(mut self) -> Self {
        self.valid_duration = Duration::ZERO;
        self.valid_use_count = NOT_CACHED;
        self
    }

    /// What the denied client gets instead of the default answer of its proxy: HTTP status, body and headers. Mixer
    /// looks at it only in a denial, and only in the first one.
    #[must_use]
    pub fn respond(mut self, response: &DirectHttpResponse) -> Self {
        self.status.details.push(Any {
            type_url: "type.googleapis.com/istio.policy.v1beta1.DirectHttpResponse".to_owned(),
            value: response.encode_to_vec().into(),
        });
        self
    }

    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        self.status.code == 0
    }

    /// The status as it goes to Mixer.
    pub fn status(&self) -> &Status {
        &self.status
    }

    fn with_status(status: Status) -> Self {
        Self { status, valid_duration: DEFAULT_DURATION, valid_use_count: DEFAULT_USES }
    }

    /// An answer that holds for no time or no use must not read as "no opinion".
    fn uncached_unless_valid(self) -> Self {
        if self.valid_duration.is_zero() || self.valid_use_count == 0 { self.no_cache() } else { self }
    }
}

impl From<Check> for CheckResult {
    fn from(check: Check) -> Self {
        Self {
            status: Some(check.status),
            valid_duration: Some(
                crate::value::Duration::from(check.valid_duration).value.unwrap_or_default(),
            ),
            valid_use_count: check.valid_use_count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(check: Check) -> (i32, i64, i32) {
        let result = CheckResult::from(check);
        let seconds = result.valid_duration.unwrap_or_default().seconds;
        (result.status.unwrap_or_default().code, seconds, result.valid_use_count)
    }

    #[test]
    fn answers_hold_for_five_seconds_and_a_thousand_uses_unless_said() {
        assert_eq!(wire(Check::allow()), (0, 5, 1000));
        assert_eq!(wire(Check::deny(Code::NotFound, "x")), (5, 5, 1000));
        assert_eq!(wire(Check::allow().for_(Duration::from_secs(60)).uses(7)), (0, 60, 7));
    }

    #[test]
    fn an_answer_without_validity_is_never_cached_and_never_no_opinion() {
        for check in [
            Check::allow().no_cache(),
            Check::allow().for_(Duration::ZERO),
            Check::allow().uses(0),
            Check::allow().uses(0).for_(Duration::ZERO),
        ] {
            assert_eq!(wire(check), (0, 0, -1));
        }
        assert_eq!(wire(Check::no_opinion()), (0, 0, 0));
    }

    #[test]
    fn a_status_is_always_sent() {
        assert!(CheckResult::from(Check::allow()).status.is_some());
    }
}
