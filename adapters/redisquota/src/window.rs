//! The windows in which amounts count.

use std::time::Duration;

use mixer_adapter_quota::Span;
use mixer_adapter_redis::millis;

/// How amounts of a quota become free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// All at once, at the end of a window that begins with the first grant.
    Fixed,
    /// Each bucket, by its age.
    Rolling(Option<Duration>),
}

/// The window of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    /// A window of this length.
    Fixed(Duration),
    Rolling(Span),
    /// Until a release, or for this time.
    Allocation(Span),
}

/// The maximum number of buckets, which limits the memory of a counter.
const MOST_TICKS: u32 = 36_000;

impl Window {
    /// Returns the window of a limit. `allocation` is how long an amount counts that nobody releases.
    pub(super) fn new(algorithm: Algorithm, valid: Option<Duration>, allocation: Duration) -> Self {
        let Some(valid) = valid else { return Self::Allocation(Span::of(allocation)) };
        match algorithm {
            Algorithm::Fixed => Self::Fixed(whole(valid)),
            Algorithm::Rolling(Some(bucket)) if bucket < valid => {
                let tick = whole(bucket.max(valid / MOST_TICKS));
                let ticks = valid.as_nanos().div_ceil(tick.as_nanos());
                Self::Rolling(Span { tick, ticks: u64::try_from(ticks).unwrap_or(u64::MAX) })
            }
            Algorithm::Rolling(_) => Self::Rolling(Span::of(valid)),
        }
    }

    /// Returns numbers that differ between the windows of a counter.
    pub(super) fn id(self) -> [u64; 3] {
        let kind = match self {
            Self::Fixed(_) => 0,
            Self::Rolling(_) => 1,
            Self::Allocation(_) => 2,
        };
        [kind, self.tick(), self.ticks()]
    }

    /// Returns how long an amount counts.
    pub(super) fn length(self) -> Duration {
        match self {
            Self::Fixed(length) => length,
            Self::Rolling(Span { tick, ticks }) | Self::Allocation(Span { tick, ticks }) => {
                tick.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
            }
        }
    }

    /// Returns the length of a tick in milliseconds; of a fixed window, its own.
    pub(super) fn tick(self) -> u64 {
        match self {
            Self::Fixed(length) => millis(length),
            Self::Rolling(span) | Self::Allocation(span) => millis(span.tick),
        }
    }

    /// Returns the number of ticks; 0 of a fixed window.
    pub(super) fn ticks(self) -> u64 {
        match self {
            Self::Fixed(_) => 0,
            Self::Rolling(span) | Self::Allocation(span) => span.ticks,
        }
    }
}

fn whole(duration: Duration) -> Duration {
    Duration::from_millis(millis(duration))
}
