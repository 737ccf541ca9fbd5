//! Merges the results of checks (docs/behaviour/dispatch.md#merging-check-answers).

use std::time::Duration;

use super::direct_response::{direct_response, is_direct_response};
use crate::proto::istio::mixer::v1::RouteDirective;
use mixer_adapter_core::{
    framework::status::status_name,
    proto::{Any, CheckResult, Status},
};

/// Mixer's validity if no adapter specifies one: one minute and 10000 uses.
pub(super) const DEFAULT_DURATION: prost_types::Duration = prost_types::Duration { seconds: 60, nanos: 0 };
pub(super) const DEFAULT_USES: i32 = 10_000;

/// The validity of an answer that allows a request in spite of a failure.
pub(super) const FAILED_DURATION: prost_types::Duration = prost_types::Duration { seconds: 1, nanos: 0 };
const FAILED_USES: i32 = 10;

/// The results so far, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct MergedResult {
    pub(super) valid_duration: prost_types::Duration,
    pub(super) valid_use_count: i32,
    /// The lowest number of uses; `None` if it is unlimited.
    pub(super) max_uses: Option<i32>,
    pub(super) denied: bool,
    code: i32,
    messages: Vec<String>,
    /// The details of all denials, without their direct responses.
    pub(super) details: Vec<Any>,
    pub(super) directive: Option<RouteDirective>,
}

impl MergedResult {
    /// Adds a result. An unspecified validity is replaced; otherwise the shorter one applies.
    pub(super) fn add(&mut self, handler: &str, result: CheckResult) {
        let status = result.status.unwrap_or_default();
        let duration = result.valid_duration.unwrap_or_default();
        let max_uses = (result.valid_use_count >= 0).then_some(result.valid_use_count);
        if self.has_no_validity() {
            self.valid_duration = duration;
            self.valid_use_count = result.valid_use_count;
            self.max_uses = max_uses;
        } else {
            if nanos(&duration) < nanos(&self.valid_duration) {
                self.valid_duration = duration;
            }
            // A negative count is the lowest to Mixer, although it means unlimited.
            self.valid_use_count = self.valid_use_count.min(result.valid_use_count);
            self.max_uses = self.max_uses.into_iter().chain(max_uses).min();
        }
        if status.code != 0 {
            if !self.denied {
                self.denied = true;
                self.code = status.code;
                self.directive = direct_response(&status);
            }
            self.messages.push(format!("{handler}:{}", status.message));
            self.details.extend(status.details.into_iter().filter(|detail| !is_direct_response(detail)));
        }
    }

    /// Adds a denial by the failure policy, which must not be cached.
    pub(super) fn deny(&mut self, why: String) {
        if !self.denied {
            self.denied = true;
            self.code = tonic::Code::Unavailable as i32;
        }
        self.messages.push(why);
        self.valid_duration = prost_types::Duration::default();
        self.valid_use_count = -1;
    }

    /// Limits the validity of an answer that allows the request in spite of a failure.
    pub(super) fn limit_validity(&mut self) {
        let is_unspecified = self.has_no_validity();
        if is_unspecified || nanos(&self.valid_duration) > nanos(&FAILED_DURATION) {
            self.valid_duration = FAILED_DURATION;
        }
        // A negative count is unlimited.
        if is_unspecified || self.valid_use_count < 0 || self.valid_use_count > FAILED_USES {
            self.valid_use_count = FAILED_USES;
        }
    }

    /// The merged status.
    pub(super) fn into_status(self) -> Status {
        Status { code: self.code, message: self.messages.join(", "), details: self.details }
    }

    /// Returns whether the request is allowed without a specified validity; header operations alone do not specify
    /// one.
    pub(super) fn has_no_validity(&self) -> bool {
        !self.denied && self.valid_duration == prost_types::Duration::default() && self.valid_use_count == 0
    }

    /// Limits the duration of validity by a rule's annotation.
    pub(super) fn limit_duration(&mut self, max: Duration) {
        if nanos(&self.valid_duration) > i128::try_from(max.as_nanos()).unwrap_or(i128::MAX) {
            self.valid_duration = prost_types::Duration::try_from(max).unwrap_or_default();
        }
    }

    /// Describes the status for a trace.
    pub(super) fn describe(&self) -> String {
        let outcome = if self.denied {
            let code = status_name(tonic::Code::from_i32(self.code) as i32);
            format!("denied, {code}: {}", self.messages.join(", "))
        } else {
            "allowed".to_owned()
        };
        let duration = mixer_adapter_core::value::format_duration(nanos(&self.valid_duration));
        format!("{outcome}; valid for {duration} and {} uses", self.valid_use_count)
    }
}

fn nanos(duration: &prost_types::Duration) -> i128 {
    i128::from(duration.seconds) * 1_000_000_000 + i128::from(duration.nanos)
}
