//! Outcomes of rate limits.

/// The outcome of a request for rate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateLimitOutcome {
    /// No descriptor is over its limit.
    Ok,
    /// A descriptor is over its limit.
    OverLimit,
    /// No quota matches: the domain is unknown, or no rule applies.
    Unmatched,
    /// A quota could not be requested.
    Failed,
    /// A descriptor is over the limit of a quota in soft mode.
    Soft,
    /// A descriptor is over the limit of a quota in shadow mode.
    Shadow,
}

impl RateLimitOutcome {
    /// The names of the outcomes by discriminant.
    pub const NAMES: [&str; 6] = ["ok", "over_limit", "unmatched", "failed", "soft", "shadow"];
}
