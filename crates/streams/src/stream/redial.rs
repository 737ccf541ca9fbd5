use std::{fmt::Display, time::Duration};

use futures_util::future::BoxFuture;
use mixer_adapter_core::framework::settings;
use mixer_adapter_net::{
    Backoff, Delays,
    grpc::{StreamClient, StreamLimits, StreamMemory},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::{listen::MESSAGE_TIMEOUT, peer::PeerChannel};

settings! {
    /// Limits of outbound streams.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct DialOptions {
        /// The delay before the second attempt.
        first_wait: Duration = Duration::from_secs(1),
        /// The longest delay between attempts, also used after a peer refused this program's identity.
        longest_wait: Duration = Duration::from_secs(60),
        /// The longest message in bytes; a longer one ends the stream.
        max_message_size: usize = 64 << 20,
        /// The memory of messages that arrive or are decoded; `None` sets no limit. A message beyond it ends its stream.
        memory: Option<StreamMemory> = None,
    }
}

impl DialOptions {
    /// Limits the messages of a peer.
    pub(crate) fn limited(&self, channel: PeerChannel) -> StreamClient<PeerChannel> {
        let memory = self.memory.clone().unwrap_or_else(|| StreamMemory::new(usize::MAX));
        let max_message_size = self.max_message_size;
        StreamClient::new(
            StreamLimits { max_message_size, memory, message_timeout: MESSAGE_TIMEOUT },
            channel,
        )
    }
}

/// Outcome of a closed stream.
pub(crate) struct Ended {
    pub(crate) status: Status,
    /// Whether a push on it was accepted.
    pub(crate) good: bool,
    /// Whether the next stream has other requests: it is opened at once.
    pub(crate) resolved: bool,
}

impl Ended {
    /// Creates the outcome of a stream without any accepted push.
    pub(crate) fn in_vain(status: Status) -> Self {
        Self { status, good: false, resolved: false }
    }

    /// Returns the delay before the next stream.
    ///
    /// Delays start over only after a stream with an accepted push that lasted longer than the delay before it. Opening
    /// a stream is not enough, because a peer that opens streams and refuses would be reconnected to in a hot loop
    /// (docs/behaviour/mcp.md#reconnecting). Neither is an accepted push, because a peer with one collection that is
    /// too large would send all others in that loop.
    fn next_delay(&self, delays: &mut Delays, lasted: Duration) -> Duration {
        if self.good && lasted > delays.last() {
            delays.reset();
        }
        if self.resolved {
            return RESOLVED;
        }
        delays.next_delay()
    }

    /// Returns whether the peer refused this program's identity.
    fn unauthorized(&self) -> bool {
        matches!(self.status.code(), Code::Unauthenticated | Code::PermissionDenied)
    }
}

/// The delay if the reason of the last end no longer exists.
const RESOLVED: Duration = Duration::from_millis(100);

/// Maintains a stream to a peer until `stop` is cancelled, which the stream observes as well.
pub(crate) async fn redial(
    peer: &impl Display,
    options: &DialOptions,
    stop: CancellationToken,
    stream: impl Fn(CancellationToken) -> BoxFuture<'static, Ended>,
) {
    let mut delays = Backoff { first: options.first_wait, longest: options.longest_wait }.delays();
    let mut last_logged = String::new();
    loop {
        let started = Instant::now();
        let ended = stream(stop.clone()).await;
        if stop.is_cancelled() {
            return;
        }
        let mut retry_in = ended.next_delay(&mut delays, started.elapsed());
        if ended.unauthorized() && !ended.resolved {
            retry_in = options.longest_wait;
        }
        let error = format!("{:?}: {}", ended.status.code(), ended.status.message());
        if ended.unauthorized() {
            // Logged each time: it needs an operator.
            tracing::error!(%peer, ?retry_in, error, "the peer refused this program's identity; use another certificate or another peer");
        } else if error != last_logged || ended.good {
            tracing::warn!(%peer, ?retry_in, error, "configuration stream ended");
        } else {
            tracing::debug!(%peer, ?retry_in, error, "configuration stream ended");
        }
        last_logged = error;
        tokio::select! {
            () = tokio::time::sleep(retry_in) => {}
            () = stop.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_a_good_stream_that_outlasts_the_delay_before_it_starts_over() {
        let ended = |good| Ended { good, ..Ended::in_vain(Status::ok("")) };
        let mut delays = Backoff { first: SECOND, longest: 60 * SECOND }.delays();
        let fell = |delay: Duration, full: u32| (full * SECOND / 2..=full * SECOND).contains(&delay);
        assert!(fell(ended(false).next_delay(&mut delays, SECOND), 1));
        assert!(fell(ended(false).next_delay(&mut delays, 100 * SECOND), 2), "opened and refused");
        let shorter = delays.last() / 2;
        assert!(
            fell(ended(true).next_delay(&mut delays, shorter), 4),
            "good, but shorter than the delay before"
        );
        let longer = delays.last() * 2;
        assert!(fell(ended(true).next_delay(&mut delays, longer), 1));
    }
}
