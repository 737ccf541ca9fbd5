//! The configuration in use.

use std::{sync::Arc, time::Duration};

use mixer_adapter_engine::{Mixer, Snapshot};
use tokio::time::{Instant, sleep};

/// How long after the start of a server the first configuration is waited for. A server that restarts is called before it has read its
/// configuration, and those calls are not to fail.
const START: Duration = Duration::from_secs(5);

/// The interval at which it is looked for.
const INTERVAL: Duration = Duration::from_millis(10);

/// The configuration of an engine.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    pub(crate) mixer: Arc<Mixer>,
    /// The end of the start-up time, as a deadline for work without one.
    pub(crate) end_of_start: Instant,
}

impl Configuration {
    pub(crate) fn new(mixer: Arc<Mixer>) -> Self {
        Self { mixer, end_of_start: Instant::now() + START }
    }

    /// Returns the current snapshot. At the start of the server, waits for the first one until the deadline; without a deadline it
    /// does not wait.
    pub(crate) async fn snapshot(&self, deadline: Option<Instant>) -> Option<Arc<Snapshot>> {
        let end = deadline.map(|deadline| deadline.min(self.end_of_start));
        loop {
            match self.mixer.snapshot() {
                None if end.is_some_and(|end| Instant::now() < end) => sleep(INTERVAL).await,
                snapshot => return snapshot,
            }
        }
    }
}
