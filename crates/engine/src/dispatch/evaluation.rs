use tonic::Code;

use crate::cache::CachePolicy;

/// The properties of an evaluation that decide whether its answer is cached.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evaluation {
    /// The policy of the rules that matched.
    pub(super) caching: CachePolicy,
    /// Number of calls of adapters.
    pub(super) calls: u32,
    /// Whether an adapter was unavailable or did not answer in time.
    pub(super) backend_down: bool,
    /// Whether a call failed for another reason.
    failed: bool,
    /// Whether an adapter denied the request.
    pub(super) denied: bool,
    /// Whether the policy ignored a failure.
    pub(super) has_ignored_failure: bool,
}

impl Evaluation {
    pub(super) fn add_calls(&mut self, calls: usize) {
        self.calls = self.calls.saturating_add(u32::try_from(calls).unwrap_or(u32::MAX));
    }

    /// Records the failure of a call.
    pub(super) fn call_failed(&mut self, code: Code) {
        match code {
            Code::Unavailable | Code::DeadlineExceeded => self.backend_down = true,
            _ => self.failed = true,
        }
    }

    /// Returns whether all calls were answered.
    pub(super) fn is_complete(&self) -> bool {
        !self.backend_down && !self.failed
    }

    /// Returns whether a stale answer may be used instead: no adapter that is up denied the request or failed.
    pub(super) fn allows_stale(&self) -> bool {
        self.backend_down && !self.failed && !self.denied
    }
}
