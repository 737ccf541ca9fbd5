/// What becomes of a request when something fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// As a real Mixer: a rule whose condition fails is skipped, a failed call or instance fails the whole request.
    #[default]
    Mixer,
    /// As if the failed part were not there.
    Open,
    /// The request is denied with UNAVAILABLE.
    Closed,
}

/// What becomes of a check when something fails, for each kind of failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailurePolicy {
    /// A rule's condition cannot be evaluated.
    pub match_error: OnFailure,
    /// An instance cannot be built, or an adapter answers with an error.
    pub adapter_error: OnFailure,
    /// An adapter does not answer in time.
    pub timeout: OnFailure,
    /// The configuration has faults (only where faulty configuration is accepted at all).
    pub config_error: OnFailure,
}

impl FailurePolicy {
    /// Whatever fails, the request is denied: the default behind Envoy.
    pub const CLOSED: Self = Self {
        match_error: OnFailure::Closed,
        adapter_error: OnFailure::Closed,
        timeout: OnFailure::Closed,
        config_error: OnFailure::Closed,
    };
}

/// Something that failed, as the policy for it has it.
#[derive(Debug)]
pub(super) enum Failure {
    /// Fails the whole request.
    Fatal(String),
    /// Denies the request.
    Deny(String),
}

impl OnFailure {
    /// What a failed condition is: unless the policy is closed, its rule is only skipped.
    pub(super) fn of_condition(self, text: impl FnOnce() -> String) -> Option<Failure> {
        (self == Self::Closed).then(|| Failure::Deny(text()))
    }

    /// What a failed instance or call is.
    pub(super) fn of_call(self, text: impl FnOnce() -> String) -> Option<Failure> {
        match self {
            Self::Mixer => Some(Failure::Fatal(text())),
            Self::Open => None,
            Self::Closed => Some(Failure::Deny(text())),
        }
    }
}

/// The texts of those that fail the whole request.
pub(super) fn fatal(failures: &[Failure]) -> Vec<String> {
    let texts = failures.iter().filter_map(|failure| match failure {
        Failure::Fatal(text) => Some(text.clone()),
        Failure::Deny(_) => None,
    });
    texts.collect()
}
