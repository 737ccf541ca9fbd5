use std::time::Duration;

use prost::Message;

use super::Code;
use crate::proto::{Any, CheckResult, Status, istio::policy::v1beta1::DirectHttpResponse};

/// The answer of a check: allowed or denied, and for how long and how many requests a caller may cache it.
///
/// By default an answer is valid for 5 s or 1000 uses, whichever ends first.
///
/// ```
/// use mixer_adapter_core::{Check, Code};
/// use std::time::Duration;
/// Check::allow().valid_for(Duration::from_secs(60)).uses(100);
/// Check::deny(Code::PermissionDenied, "not on the list").no_cache();
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    status: Status,
    valid_duration: Duration,
    valid_use_count: i32,
}

/// The default validity.
const DEFAULT_DURATION: Duration = Duration::from_secs(5);
/// The default number of uses.
const DEFAULT_USES: i32 = 1000;
/// With a duration of 0 s, the only use count that keeps every Mixer from caching the answer
/// (docs/behaviour/adapter-calls.md#validity-of-a-check).
const NOT_CACHED: i32 = -1;

impl Check {
    /// Allows the request.
    pub fn allow() -> Self {
        Self::with_status(Status::default())
    }

    /// Denies the request. The sender of the request receives the message.
    pub fn deny(code: Code, message: impl Into<String>) -> Self {
        Self::with_status(Status { code: code as i32, message: message.into(), details: Vec::new() })
    }

    /// Answers with a configured status: code 0 allows, any other code denies. Mixer forwards codes that
    /// `google.rpc.Code` does not define.
    pub fn from_status(status: Status) -> Self {
        Self::with_status(status)
    }

    /// Allows with a duration and a use count of zero, which Mixer reads as "no opinion": it replaces them with one
    /// minute and 10000 uses, whatever other adapters answer
    /// (docs/behaviour/adapter-calls.md#validity-of-a-check).
    pub fn no_opinion() -> Self {
        Self { status: Status::default(), valid_duration: Duration::ZERO, valid_use_count: 0 }
    }

    /// Sets how long the answer is valid; zero is the same as [`no_cache`](Self::no_cache).
    #[must_use]
    pub fn valid_for(mut self, duration: Duration) -> Self {
        self.valid_duration = duration;
        self.uncached_unless_valid()
    }

    /// Sets how many requests the answer may serve; zero is the same as [`no_cache`](Self::no_cache).
    #[must_use]
    pub fn uses(mut self, count: u32) -> Self {
        self.valid_use_count = i32::try_from(count).unwrap_or(i32::MAX);
        self.uncached_unless_valid()
    }

    /// Limits the answer to this request.
    #[must_use]
    pub fn no_cache(mut self) -> Self {
        self.valid_duration = Duration::ZERO;
        self.valid_use_count = NOT_CACHED;
        self
    }

    /// Sets the HTTP status, body and headers that a denied client receives instead of the proxy's default response.
    /// Mixer uses it only in a denial, and only the first one.
    #[must_use]
    pub fn with_direct_response(mut self, response: &DirectHttpResponse) -> Self {
        self.status.details.push(Any {
            type_url: "type.googleapis.com/istio.policy.v1beta1.DirectHttpResponse".to_owned(),
            value: response.encode_to_vec().into(),
        });
        self
    }

    /// Returns whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.status.code == 0
    }

    /// Returns the status that is sent to Mixer.
    pub fn status(&self) -> &Status {
        &self.status
    }

    fn with_status(status: Status) -> Self {
        Self { status, valid_duration: DEFAULT_DURATION, valid_use_count: DEFAULT_USES }
    }

    /// Keeps an answer without validity from being read as "no opinion".
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
    fn answers_are_valid_for_five_seconds_and_a_thousand_uses_by_default() {
        assert_eq!(wire(Check::allow()), (0, 5, 1000));
        assert_eq!(wire(Check::deny(Code::NotFound, "x")), (5, 5, 1000));
        assert_eq!(wire(Check::allow().valid_for(Duration::from_secs(60)).uses(7)), (0, 60, 7));
    }

    #[test]
    fn an_answer_without_validity_is_never_cached_and_never_no_opinion() {
        for check in [
            Check::allow().no_cache(),
            Check::allow().valid_for(Duration::ZERO),
            Check::allow().uses(0),
            Check::allow().uses(0).valid_for(Duration::ZERO),
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
