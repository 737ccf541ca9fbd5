use std::time::Duration;

use prost::Message as _;
use prost_types::Struct;

use super::{Code, HeaderOperation, header_operation::RouteDirective};
use crate::proto::{
    Any, CheckResult, Status, google::rpc::LocalizedMessage, istio::policy::v1beta1::DirectHttpResponse,
};

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
///
/// A [`CheckResult`] is converted as it is, with any validity.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    status: Status,
    valid_duration: prost_types::Duration,
    valid_use_count: i32,
    /// Whether the validity is sent as it is.
    is_raw: bool,
}

/// The default validity.
const DEFAULT_DURATION: prost_types::Duration = prost_types::Duration { seconds: 5, nanos: 0 };
const ZERO: prost_types::Duration = prost_types::Duration { seconds: 0, nanos: 0 };
/// The default number of uses.
const DEFAULT_USES: i32 = 1000;
/// With a duration of 0 s, the only use count that keeps every Mixer from caching the answer
/// (docs/behaviour/adapter-calls.md#validity-of-a-check).
const NOT_CACHED: i32 = -1;

impl Check {
    /// Allows the request.
    pub fn allow() -> Self {
        Self::from_status(Status::default())
    }

    /// Denies the request. The sender of the request receives the message.
    pub fn deny(code: Code, message: impl Into<String>) -> Self {
        Self::from_status(Status { code: code as i32, message: message.into(), details: Vec::new() })
    }

    /// Answers with a configured status: code 0 allows, any other code denies. Mixer forwards codes that
    /// `google.rpc.Code` does not define.
    pub fn from_status(status: Status) -> Self {
        Self { status, valid_duration: DEFAULT_DURATION, valid_use_count: DEFAULT_USES, is_raw: false }
    }

    /// Allows with a duration and a use count of zero, which Mixer reads as "no opinion": it replaces them with one
    /// minute and 10000 uses, whatever other adapters answer
    /// (docs/behaviour/adapter-calls.md#validity-of-a-check).
    pub fn no_opinion() -> Self {
        Self { is_raw: true, ..Self::from_status(Status::default()).valid_for(Duration::ZERO).uses(0) }
    }

    /// Sets how long the answer is valid. Zero is the same as [`no_cache`](Self::no_cache), except for a denial with zero
    /// [`uses`](Self::uses), which is sent as it is.
    #[must_use]
    pub fn valid_for(mut self, duration: Duration) -> Self {
        self.valid_duration = crate::value::Duration::from(duration).value.unwrap_or_default();
        self
    }

    /// Sets how many requests the answer may serve. Zero is the same as [`no_cache`](Self::no_cache), except for a denial that is
    /// [valid for](Self::valid_for) zero seconds, which is sent as it is.
    #[must_use]
    pub fn uses(mut self, count: u32) -> Self {
        self.valid_use_count = i32::try_from(count).unwrap_or(i32::MAX);
        self
    }

    /// Limits the answer to this request.
    #[must_use]
    pub fn no_cache(mut self) -> Self {
        self.valid_duration = ZERO;
        self.valid_use_count = NOT_CACHED;
        self
    }

    /// Sets the HTTP status, body and headers that a denied client receives instead of the proxy's default response.
    /// Mixer uses it only in a denial, and only the first one.
    #[must_use]
    pub fn with_direct_response(self, response: &DirectHttpResponse) -> Self {
        self.detail(response)
    }

    /// Adds a detail of a denial for programs: a message of [`google::rpc`](crate::proto::google::rpc) or any other one.
    ///
    /// The engine passes the details of all denials on to its callers, up to 4 KiB. A real Mixer drops them.
    ///
    /// ```
    /// use mixer_adapter_core::{Check, Code, proto::google::rpc::ErrorInfo};
    /// let reason = ErrorInfo { reason: "BLOCKED".into(), domain: "example.com".into(), ..Default::default() };
    /// Check::deny(Code::PermissionDenied, "blocked").detail(&reason).localized("de", "gesperrt");
    /// ```
    #[must_use]
    pub fn detail<M: prost::Name>(mut self, message: &M) -> Self {
        self.status.details.push(Any::pack(message));
        self
    }

    /// Adds dynamic metadata for Envoy, which clients do not receive: a detail `google.protobuf.Struct`, at most 16 KiB. An answer that
    /// allows may have it, too. A real Mixer drops it.
    #[must_use]
    pub fn with_metadata(mut self, metadata: &Struct) -> Self {
        let type_url = "type.googleapis.com/google.protobuf.Struct".to_owned();
        self.status.details.push(Any { type_url, value: metadata.encode_to_vec().into() });
        self
    }

    /// Changes headers of the request to the upstream and of the response to the client, in this order, if the answer allows. They
    /// are sent as a detail `istio.mixer.v1.RouteDirective`, at most one per answer. A real Mixer drops it.
    #[must_use]
    pub fn with_header_operations(
        self,
        request: Vec<HeaderOperation>,
        response: Vec<HeaderOperation>,
    ) -> Self {
        let directive = RouteDirective { request, response };
        if directive == RouteDirective::default() { self } else { self.detail(&directive) }
    }

    /// Adds the message of a denial in the language of users, by its BCP 47 tag; a detail `google.rpc.LocalizedMessage`.
    #[must_use]
    pub fn localized(self, locale: impl Into<String>, message: impl Into<String>) -> Self {
        self.detail(&LocalizedMessage { locale: locale.into(), message: message.into() })
    }

    /// Returns whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.status.code == 0
    }

    /// Returns the status that is sent to Mixer.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Returns how long the answer is valid; zero if it must not be cached.
    pub fn valid_duration(&self) -> Duration {
        if self.needs_no_cache() {
            Duration::ZERO
        } else {
            self.valid_duration.try_into().unwrap_or_default()
        }
    }

    /// Returns how many requests the answer may serve; zero if it must not be cached.
    pub fn valid_use_count(&self) -> u32 {
        if self.needs_no_cache() { 0 } else { self.valid_use_count.try_into().unwrap_or(0) }
    }

    /// Returns the details of a denial.
    pub fn details(&self) -> &[Any] {
        &self.status.details
    }

    /// Returns whether the validity is replaced, so that the answer is not read as "no opinion". Mixer never takes a denial for
    /// that.
    fn needs_no_cache(&self) -> bool {
        let (no_time, no_uses) = (self.valid_duration == ZERO, self.valid_use_count == 0);
        !self.is_raw && (no_time || no_uses) && (self.is_allowed() || !(no_time && no_uses))
    }
}

impl From<Check> for CheckResult {
    fn from(check: Check) -> Self {
        let check = if check.needs_no_cache() { check.no_cache() } else { check };
        Self {
            status: Some(check.status),
            valid_duration: Some(check.valid_duration),
            valid_use_count: check.valid_use_count,
        }
    }
}

/// Answers with exactly this result. If it allows the request and is valid for 0 s and 0 uses, it means "no opinion"; see
/// [`Check::no_opinion`].
impl From<CheckResult> for Check {
    fn from(result: CheckResult) -> Self {
        Self {
            status: result.status.unwrap_or_default(),
            valid_duration: result.valid_duration.unwrap_or_default(),
            valid_use_count: result.valid_use_count,
            is_raw: true,
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
            Check::allow().uses(0).valid_for(Duration::from_secs(60)),
        ] {
            assert_eq!(wire(check), (0, 0, -1));
        }
        assert_eq!(wire(Check::no_opinion()), (0, 0, 0));
    }

    #[test]
    fn a_denial_may_be_valid_for_zero_seconds_and_zero_uses() {
        let denial = || Check::deny(Code::Unauthenticated, "who?");
        assert_eq!(wire(denial().valid_for(Duration::ZERO).uses(0)), (16, 0, 0));
        assert_eq!(wire(denial().uses(0).valid_for(Duration::ZERO)), (16, 0, 0));
        for uncached in [denial().no_cache(), denial().uses(0), denial().valid_for(Duration::ZERO)] {
            assert_eq!(wire(uncached), (16, 0, -1));
        }
    }

    #[test]
    fn a_raw_result_is_sent_as_it_is() {
        for (code, seconds, uses) in [(0, 0, 0), (7, 0, 0), (7, 5, 0), (0, -3, 8)] {
            let result = CheckResult {
                status: Some(Status { code, ..Status::default() }),
                valid_duration: Some(prost_types::Duration { seconds, nanos: 0 }),
                valid_use_count: uses,
            };
            assert_eq!(wire(Check::from(result)), (code, seconds, uses));
        }
    }

    #[test]
    fn details_are_sent_by_their_types_in_order() {
        let check = Check::deny(Code::NotFound, "x").localized("de", "nicht da").localized("fr", "absent");
        let details = CheckResult::from(check).status.unwrap_or_default().details;
        let url = "type.googleapis.com/google.rpc.LocalizedMessage";
        assert!(details.iter().all(|detail| detail.type_url == url));
        let values: Vec<_> = details.iter().map(|detail| &*detail.value).collect();
        assert_eq!(values, [&b"\x0a\x02de\x12\x08nicht da"[..], b"\x0a\x02fr\x12\x06absent"]);
    }

    #[test]
    fn the_validity_of_an_answer_can_be_read() {
        let read = |check: Check| (check.valid_duration().as_secs(), check.valid_use_count());
        assert_eq!(read(Check::allow()), (5, 1000));
        assert_eq!(
            read(Check::deny(Code::NotFound, "x").valid_for(Duration::from_secs(60)).uses(7)),
            (60, 7)
        );
        assert_eq!(read(Check::allow().no_cache()), (0, 0));
        assert_eq!(read(Check::allow().uses(0)), (0, 0));
    }

    #[test]
    fn a_status_is_always_sent() {
        assert!(CheckResult::from(Check::allow()).status.is_some());
    }
}
