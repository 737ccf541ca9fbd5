//! Threads for handshakes: verifying a certificate takes time, and the peer is not known before.

use std::{io, sync::LazyLock};

use tokio_util::task::AbortOnDropHandle;

use crate::OwnThread;

/// A thread for handshakes.
pub(super) struct Handshakes(LazyLock<io::Result<OwnThread>>);

/// Handshakes with clients. Strangers can begin as many as a port admits.
pub(super) static WITH_CLIENTS: Handshakes = Handshakes(LazyLock::new(|| OwnThread::start("tls-clients")));

/// Handshakes with servers, which those with clients do not hold up.
pub(super) static WITH_SERVERS: Handshakes = Handshakes(LazyLock::new(|| OwnThread::start("tls-servers")));

impl Handshakes {
    /// Runs a handshake, which ends when the result is dropped. Its stream belongs to the runtime of the caller all the time.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        handshake: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let thread = self.0.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        AbortOnDropHandle::new(thread.runtime().spawn(handshake)).await?
    }
}
