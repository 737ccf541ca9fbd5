//! The clock of a handler.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

// `Instant` stands still on Linux while the machine is suspended.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Measures the time since it was started. It continues while the machine is suspended, as Redis' time does, by which leases end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Duration,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { start: now() }
    }

    pub(super) fn elapsed(self) -> Duration {
        now().saturating_sub(self.start)
    }
}

fn now() -> Duration {
    // Since the machine started, so not negative.
    Duration::try_from(clock_gettime(CLOCK)).unwrap_or_default()
}
