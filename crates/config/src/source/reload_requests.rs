use std::future::pending;

use tokio::sync::watch;

/// Requests to read files again, such as SIGHUP; by default there are none.
#[derive(Clone, Debug, Default)]
pub struct ReloadRequests(Option<watch::Receiver<()>>);

impl From<watch::Receiver<()>> for ReloadRequests {
    /// Makes each change of the value a request.
    fn from(requests: watch::Receiver<()>) -> Self {
        Self(Some(requests))
    }
}

impl ReloadRequests {
    /// Waits for a request. Requests that arrive before the last one was handled are one.
    pub async fn next(&mut self) {
        let requested = match &mut self.0 {
            Some(requests) => requests.changed().await.is_ok(),
            None => false,
        };
        // No other can follow.
        if !requested {
            pending().await
        }
    }
}
