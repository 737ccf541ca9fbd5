use std::time::{Duration, Instant};

/// The time for a client to request the endpoints of new clusters, and to answer both.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Whether resources that refer to clusters wait for the client, which does not route to a cluster without endpoints
/// (docs/behaviour/xds.md#rule-8-order).
#[derive(Debug, Default, PartialEq)]
pub(super) enum Warming {
    /// The client has answered all new clusters and endpoints.
    #[default]
    Done,
    /// New clusters or endpoints were sent; the timeout starts with the next call of [`elapsed`](Self::elapsed).
    Started,
    Until(Instant),
    /// The client did not answer in time.
    Overdue,
}

impl Warming {
    /// Handles a push of resources that the client lacked. The timeout of an earlier push stays.
    pub(super) fn start(&mut self) {
        if *self == Self::Done {
            *self = Self::Started;
        }
    }

    /// Handles the answer to the last unanswered push.
    pub(super) fn finish(&mut self) {
        *self = Self::Done;
    }

    pub(super) fn is_active(&self) -> bool {
        matches!(self, Self::Started | Self::Until(_))
    }

    pub(super) fn is_overdue(&self) -> bool {
        *self == Self::Overdue
    }

    /// Returns the time of the next call of [`elapsed`](Self::elapsed).
    pub(super) fn wakeup(&self) -> Option<Instant> {
        match self {
            Self::Until(at) => Some(*at),
            _ => None,
        }
    }

    /// Handles the passing of time.
    pub(super) fn elapsed(&mut self, now: Instant) {
        match self {
            Self::Started => *self = Self::Until(now + TIMEOUT),
            Self::Until(at) if *at <= now => *self = Self::Overdue,
            _ => {}
        }
    }
}
