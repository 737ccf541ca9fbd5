use crate::dispatch::FailureTexts;
use mixer_adapter_core::framework::settings;

/// The treatment of a request when something fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// As in Mixer: a rule whose condition fails is skipped; a failed call or instance fails the request.
    #[default]
    Mixer,
    /// Ignore the failed part. An answer that is allowed nevertheless is valid for a second and few uses.
    Open,
    /// Deny the request with UNAVAILABLE.
    Closed,
    /// Fail the request, also for a condition or the value of a header operation that cannot be evaluated. The meaning of `Mixer`
    /// behind Envoy, where the proxy is configured to allow or deny a request that could not be checked.
    Fail,
}

settings! {
    /// The treatment of a check by kind of failure.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct FailurePolicy {
        /// A rule's condition cannot be evaluated.
        match_error: OnFailure = OnFailure::default(),
        /// An instance cannot be built, or an adapter returns an error.
        adapter_error: OnFailure = OnFailure::default(),
        /// An adapter does not respond in time.
        timeout: OnFailure = OnFailure::default(),
        /// The configuration has faults, which only lenient mode accepts.
        config_error: OnFailure = OnFailure::default(),
        /// A quota is requested that no rule has.
        unknown_quota: OnUnknownQuota = OnUnknownQuota::default(),
    }
}

/// The treatment of requests for a quota that no rule has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnUnknownQuota {
    /// As in Mixer: the amount is granted in full.
    #[default]
    Grant,
    /// Grants nothing.
    Deny,
}

impl FailurePolicy {
    /// Denies the request on every failure.
    pub const CLOSED: Self = Self {
        match_error: OnFailure::Closed,
        adapter_error: OnFailure::Closed,
        timeout: OnFailure::Closed,
        config_error: OnFailure::Closed,
        unknown_quota: OnUnknownQuota::Deny,
    };

    /// Returns the policy with [`OnFailure::Fail`] for the failures of conditions and calls that are treated as in Mixer.
    #[must_use]
    pub fn strict(self) -> Self {
        let [match_error, adapter_error, timeout] = [self.match_error, self.adapter_error, self.timeout]
            .map(|policy| if policy == OnFailure::Mixer { OnFailure::Fail } else { policy });
        Self { match_error, adapter_error, timeout, ..self }
    }
}

/// A failure as classified by the policy.
#[derive(Debug)]
pub(crate) enum FailureEffect {
    /// Fails the request.
    Fatal(String),
    /// Denies the request.
    Deny(String),
    /// Is ignored, which limits the validity of the answer.
    Ignore,
}

impl OnFailure {
    /// Classifies a failed condition: `Mixer` and `Open` skip the rule.
    pub(crate) fn of_condition(self, text: impl FnOnce() -> String) -> Option<FailureEffect> {
        match self {
            Self::Mixer => None,
            Self::Open => Some(FailureEffect::Ignore),
            Self::Closed => Some(FailureEffect::Deny(text())),
            Self::Fail => Some(FailureEffect::Fatal(text())),
        }
    }

    /// Classifies the value of a header operation that cannot be evaluated: only `Fail` does not skip the operation.
    pub(crate) fn of_header(self, text: impl FnOnce() -> String) -> Option<FailureEffect> {
        (self == Self::Fail).then(|| FailureEffect::Fatal(text()))
    }

    /// Classifies a failed instance or call.
    pub(crate) fn of_call(self, text: impl FnOnce() -> String) -> FailureEffect {
        match self {
            Self::Mixer | Self::Fail => FailureEffect::Fatal(text()),
            Self::Open => FailureEffect::Ignore,
            Self::Closed => FailureEffect::Deny(text()),
        }
    }
}

impl FailureEffect {
    /// Returns the text of a failure that is not ignored.
    pub(crate) fn into_text(self) -> Option<String> {
        match self {
            Self::Fatal(text) | Self::Deny(text) => Some(text),
            Self::Ignore => None,
        }
    }
}

/// Returns the texts of fatal failures.
pub(crate) fn fatal(failures: &[FailureEffect]) -> FailureTexts {
    let texts = failures.iter().filter_map(|failure| match failure {
        FailureEffect::Fatal(text) => Some(text.clone()),
        FailureEffect::Deny(_) | FailureEffect::Ignore => None,
    });
    texts.collect()
}
