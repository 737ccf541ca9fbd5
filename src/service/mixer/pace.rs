//! The pace of long calls.

use tokio::time::Instant;
use tonic::Status;

/// Lets other calls of the thread proceed during a long one, and ends it at its deadline. A call whose caller has gone ends here,
/// too: its future is dropped while it yields.
pub(super) struct Pace {
    deadline: Option<Instant>,
    /// The work since the last yield, in bytes.
    work: usize,
}

/// The work between two yields, in bytes: below a millisecond.
const SHARE: usize = 64 << 10;

/// The work for a request of a report or for a quota without attributes, in bytes.
const LEAST: usize = 1 << 10;

impl Pace {
    pub(super) fn new(deadline: Option<Instant>) -> Self {
        Self { deadline, work: 0 }
    }

    /// Counts a step that handled attributes and instances of `bytes`.
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED.
    pub(super) async fn step(&mut self, bytes: usize) -> Result<(), Status> {
        self.work = self.work.saturating_add(bytes).saturating_add(LEAST);
        if self.work < SHARE {
            return Ok(());
        }
        self.work = 0;
        tokio::task::yield_now().await;
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            Err(Status::deadline_exceeded("the deadline passed"))
        } else {
            Ok(())
        }
    }
}
