use std::future::pending;

use tokio::sync::watch;

/// Requests to read files again, such as SIGHUP; by default there are none.
#[derive(Clone, Debug, Default)]
pub struct ReloadRequests(Option<watch::Receiver<()>>);

impl From<watch::Receiver<()>> for ReloadRequests {
    /// Each change of the value is a request.
    fn from(requests: watch::Receiver<()>) -> Self {
        Self(Some(requests))
    }
}

impl ReloadRequests {
    /// Waits for a request. Those that arrive before the last one was taken are one.
    pub(crate) async fn next(&mut self) {
        let requested = match &mut self.0 {
            Some(requests) => requests.changed().await.is_ok(),
            None => false,
        };
        // There will be none any more.
        if !requested {
            pending().await
        }
    }
}
