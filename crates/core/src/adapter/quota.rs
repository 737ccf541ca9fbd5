use std::time::Duration;

/// The request of a quota call, beside its instance.
///
/// ```
/// use mixer_adapter_core::QuotaRequest;
/// let request = QuotaRequest::new(5).with_best_effort().with_dedup_id("a-1");
/// assert_eq!((request.amount, request.best_effort), (5, true));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaRequest {
    /// The amount requested; a negative amount releases what was allocated.
    pub amount: i64,
    /// Whether a part of the amount may be granted.
    pub best_effort: bool,
    /// Identifies the call: a call that is sent again has the same id and must count once. Unrelated calls of several
    /// Mixers can share an id (docs/behaviour/adapter-calls.md#deduplication-ids), and some clients send none.
    pub dedup_id: String,
}

impl QuotaRequest {
    /// Requests `amount` without best effort and without a deduplication id.
    pub fn new(amount: i64) -> Self {
        Self { amount, best_effort: false, dedup_id: String::new() }
    }

    /// Accepts a part of the amount.
    #[must_use]
    pub fn with_best_effort(self) -> Self {
        Self { best_effort: true, ..self }
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
}

impl Grant {
    /// Grants an amount; for a release, the amount that was released. Without best effort this must be the whole amount
    /// or zero, and it is never negative.
    pub fn amount(amount: i64) -> Self {
        Self { granted: amount, valid_duration: Duration::ZERO }
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

    /// Returns the amount granted.
    pub fn granted(&self) -> i64 {
        self.granted
    }

    /// Returns how long the grant holds; zero means until it is released.
    pub fn valid_duration(&self) -> Duration {
        self.valid_duration
    }
}
