use std::{
    fmt::Display,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::backoff::Backoff;

/// How a peer is dialed, and what is taken from it.
#[derive(Clone, Debug)]
pub struct DialOptions {
    /// The wait before the second try.
    pub first_wait: Duration,
    /// The longest wait between tries; the wait for a peer that wants to know who one is.
    pub longest_wait: Duration,
    /// The longest message in bytes; a longer one ends the stream.
    pub max_message_size: usize,
}

impl Default for DialOptions {
    fn default() -> Self {
        Self {
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(60),
            max_message_size: 64 << 20,
        }
    }
}

/// How a stream ended.
pub(crate) struct Ended {
    pub(crate) status: Status,
    /// Something came of it.
    pub(crate) good: bool,
    /// The next stream will be another one, so that there is no reason to wait.
    pub(crate) resolved: bool,
}

impl Ended {
    pub(crate) fn in_vain(status: Status) -> Self {
        Self { status, good: false, resolved: false }
    }
}

/// The wait when the reason of the last end is gone.
const RESOLVED: Duration = Duration::from_millis(100);

/// Keeps a stream to a peer open until told to stop, which the stream is told too.
pub(crate) async fn redial(
    peer: &impl Display,
    options: &DialOptions,
    stop: CancellationToken,
    stream: impl Fn(CancellationToken) -> BoxFuture<'static, Ended>,
) {
    let mut backoff = Backoff::new(options.first_wait, options.longest_wait);
    let mut told = String::new();
    loop {
        let started = Instant::now();
        let ended = stream(stop.clone()).await;
        if stop.is_cancelled() {
            return;
        }
        backoff.ended(ended.good, started.elapsed());
        let unwelcome = matches!(ended.status.code(), Code::Unauthenticated | Code::PermissionDenied);
        let wait = match unwelcome {
            _ if ended.resolved => RESOLVED,
            true => backoff.wait(chance()).max(options.longest_wait),
            false => backoff.wait(chance()),
        };
        let text = format!("{:?}: {}", ended.status.code(), ended.status.message());
        // A reason is told once, not on every try; but that one does not go away by itself.
        if unwelcome {
            tracing::error!(%peer, ?wait, "this program is not let in: {text}; it needs another identity, or another peer");
        } else if text != told || ended.good {
            tracing::warn!(%peer, ?wait, "the configuration stream ended: {text}");
        } else {
            tracing::debug!(%peer, ?wait, "and again: {text}");
        }
        told = text;
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Some number: the standard library seeds its hashers by chance.
pub(crate) fn chance() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}
