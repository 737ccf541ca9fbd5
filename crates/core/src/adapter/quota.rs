use std::time::Duration;

/// The request of a quota call, beside its instance.
///
/// ```
/// use mixer_adapter_core::QuotaRequest;
/// let request = QuotaRequest::new(5).with_best_effort().with_dedup_id("a-1");
/// assert_eq!((request.amount, request.best_effort), (5, true));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaRequest {
    /// The amount requested; a negative amount is given back.
    pub amount: i64,
    /// Whether a part of the amount may be granted.
    pub best_effort: bool,
    /// Identifies the call: a call that is sent again has the same id and must count once. Unrelated calls of several
    /// Mixers can share an id (docs/behaviour/adapter-calls.md#deduplication-ids), and some clients send none.
    pub dedup_id: String,
    /// Whether the caller reads the state of the limit: see [`Grant::with_limit`]. An amount of 0 only asks for it.
    pub report_limit: bool,
    /// Whether the amount is counted even past the limit, because it is used already.
    pub past_limit: bool,
    /// A limit in place of the configured one.
    pub limit: Option<LimitOverride>,
}

/// A limit that a caller sets; Envoy reads it from the metadata of a request, for example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverride {
    /// The maximum amount in use.
    pub max_amount: i64,
    /// How long an amount is in use.
    pub window: Duration,
}

impl QuotaRequest {
    /// Requests `amount` without best effort and without a deduplication id.
    pub fn new(amount: i64) -> Self {
        Self { amount, ..Self::default() }
    }

    /// Accepts a part of the amount.
    #[must_use]
    pub fn with_best_effort(self) -> Self {
        Self { best_effort: true, ..self }
    }

    /// Asks for the state of the limit.
    #[must_use]
    pub fn with_report_limit(self) -> Self {
        Self { report_limit: true, ..self }
    }

    /// Counts the amount even past the limit.
    #[must_use]
    pub fn with_past_limit(self) -> Self {
        Self { past_limit: true, ..self }
    }

    /// Replaces the configured limit.
    #[must_use]
    pub fn with_limit(self, limit: LimitOverride) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Sets the deduplication id.
    #[must_use]
    pub fn with_dedup_id(self, dedup_id: impl Into<String>) -> Self {
        Self { dedup_id: dedup_id.into(), ..self }
    }
}

impl From<i64> for QuotaRequest {
    /// Same as [`QuotaRequest::new`].
    fn from(amount: i64) -> Self {
        Self::new(amount)
    }
}

/// The answer of a quota call.
///
/// ```
/// use mixer_adapter_core::Grant;
/// use std::time::Duration;
/// Grant::amount(5).valid_for(Duration::from_secs(60));
/// Grant::nothing();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    granted: i64,
    valid_duration: Duration,
    limit: Option<LimitState>,
}

/// The state of a limit, which callers such as Envoy show to their clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitState {
    /// The maximum amount in use.
    pub max_amount: i64,
    /// The amount that is available; 0 past the limit.
    pub remaining: i64,
    /// How long an amount is in use; `None` if until it is released.
    pub window: Option<Duration>,
    /// How long until the amount that was refused is available, or else until nothing is in use; `None` if that is unknown.
    pub reset_after: Option<Duration>,
}

impl Grant {
    /// Grants an amount; for a release, the amount that was released. Without best effort this must be the whole amount
    /// or zero, and it is never negative.
    pub fn amount(amount: i64) -> Self {
        Self { granted: amount, valid_duration: Duration::ZERO, limit: None }
    }

    /// Grants nothing.
    pub fn nothing() -> Self {
        Self::amount(0)
    }

    /// Limits the grant to a duration. The default is zero: the grant holds until it is released.
    #[must_use]
    pub fn valid_for(mut self, duration: Duration) -> Self {
        self.valid_duration = duration;
        self
    }

    /// Adds the state of the limit, for a request with [`QuotaRequest::report_limit`].
    #[must_use]
    pub fn with_limit(mut self, limit: LimitState) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Returns the state of the limit.
    pub fn limit(&self) -> Option<LimitState> {
        self.limit
    }

    /// Returns the amount granted.
    pub fn granted(&self) -> i64 {
        self.granted
    }

    /// Returns how long the grant holds; zero means until it is released.
    pub fn valid_duration(&self) -> Duration {
        self.valid_duration
    }
}
