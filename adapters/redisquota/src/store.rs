//! The counters in Redis, and the connection to it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use mixer_adapter_core::{
    Context,
    adapter::Warning,
    metrics::{Events, Gauge},
};
use mixer_adapter_net::Backoff;
use mixer_adapter_quota::SharedFingerprint;
use redis::{RedisError, Script, ScriptInvocation, ServerErrorKind};
use tokio::{sync::watch, time::timeout};

use super::{
    connector::{CONNECT_TIMEOUT, Connection, ConnectionError, Connector},
    lease::Trip,
    window::{Window, millis},
};

/// Reads the time of the server, so that clocks of clients do not matter.
pub(super) const CLOCK: &str =
    "local clock = redis.call('TIME')\nlocal now = clock[1] * 1000 + math.floor(clock[2] / 1000)\n";
const CALL: &str = include_str!("call.lua");
const BEAT: &str = include_str!("beat.lua");

/// The delays between attempts to connect.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };
/// How often a server notes that it lives, and so notices that Redis does not answer.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long a server counts as alive.
const ALIVE: Duration = Duration::from_secs(10);
/// The number of calls without an answer, one after the other, that ends a connection.
const MOST_TIMEOUTS: u32 = 3;
/// The largest amount that scripts count exactly. Larger amounts and limits are reduced to it.
const MOST: i64 = 1 << 52;

/// One call of a counter.
#[derive(Clone, Debug)]
pub(super) struct CounterCall {
    pub(super) counter: SharedFingerprint,
    pub(super) window: Window,
    pub(super) max: i64,
    pub(super) amount: i64,
    pub(super) best_effort: bool,
    pub(super) past_limit: bool,
    /// How long a grant is valid; a fixed window has its own.
    pub(super) valid: Duration,
    /// The fingerprint of the call, and how long a repeated one gets the same answer.
    pub(super) repeatable: Option<(SharedFingerprint, Duration)>,
    /// What the trip does for leases.
    pub(super) trip: Trip,
}

/// The state of a counter after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) granted: i64,
    pub(super) valid: Duration,
    /// The amount in use, leases included.
    pub(super) used: i64,
    /// How long until the refused amount is free, or else everything.
    pub(super) reset_after: Duration,
    /// Whether this is the answer of an earlier call.
    pub(super) is_repeated: bool,
    /// The amount of the lease, and its life.
    pub(super) lease: (i64, Duration),
    /// The amount of all leases.
    pub(super) leased: i64,
}

/// The answer of call.lua.
type CallReply = (i64, u64, i64, u64, bool, i64, u64, i64);

/// A call that Redis did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error("there is no connection to Redis")]
    Away,
    #[error("Redis did not answer within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Redis(#[from] RedisError),
}

/// Whether there is a connection.
#[derive(Clone)]
enum State {
    Connecting,
    Connected(Established),
    /// The warning ends with this state.
    Away(#[expect(dead_code, reason = "it is shown until it is dropped")] Arc<Warning>),
}

/// A connection that has proved that it can write. Clones are the same.
#[derive(Clone)]
struct Established {
    connection: Connection,
    /// The number of calls in a row without an answer.
    timeouts: Arc<AtomicU32>,
}

impl Established {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.timeouts, &other.timeouts)
    }
}

/// The counters in one Redis.
pub(super) struct Store {
    connector: Connector,
    call: Script,
    beat: Script,
    key_prefix: String,
    /// The name of this server among those with the same keys.
    id: String,
    state: watch::Sender<State>,
    /// The number of servers that live; 0 before the first answer of Redis.
    servers: AtomicU64,
    context: Context,
    lost: Events,
    connected: Gauge,
}

impl Store {
    /// Creates a store without a connection, which [`maintain`](Self::maintain) establishes. Scripts read the time with `clock`.
    pub(super) fn new(
        connector: Connector,
        key_prefix: String,
        id: String,
        clock: &str,
        context: Context,
    ) -> Self {
        let metrics = context.metrics();
        let connected = metrics.gauge("connected", "Whether there is a connection to Redis", []);
        Self {
            connector,
            call: Script::new(&format!("{clock}{CALL}")),
            beat: Script::new(&format!("{CLOCK}{BEAT}")),
            key_prefix,
            id,
            state: watch::Sender::new(State::Connecting),
            servers: AtomicU64::new(0),
            lost: metrics.events("connections_lost"),
            connected: connected.with([]),
            context,
        }
    }

    /// Returns the number of servers that live, from the last answer of Redis; `None` before the first.
    pub(super) fn servers(&self) -> Option<u64> {
        Some(self.servers.load(Relaxed)).filter(|servers| *servers > 0)
    }

    /// Returns whether there is a connection.
    #[cfg(test)]
    pub(super) fn is_connected(&self) -> bool {
        matches!(*self.state.borrow(), State::Connected(_))
    }

    /// Waits until the first attempt to connect has ended.
    pub(super) async fn attempted(&self) {
        let mut state = self.state.subscribe();
        // The sender is not dropped.
        let _ = state.wait_for(|state| !matches!(state, State::Connecting)).await;
    }

    /// Keeps a connection as long as it is polled.
    pub(super) async fn maintain(self: Arc<Self>) {
        let mut delays = BACKOFF.delays();
        loop {
            match self.connect().await {
                Ok(established) => {
                    delays.reset();
                    tracing::info!("connected to Redis");
                    self.connected.set(1);
                    self.state.send_replace(State::Connected(established.clone()));
                    self.hold(established).await;
                }
                Err(error) => self.lose(None, &error),
            }
            tokio::time::sleep(delays.next_delay()).await;
        }
    }

    /// Connects, and proves that the server accepts writes.
    async fn connect(&self) -> Result<Established, ConnectionError> {
        let connect = async {
            let mut connection = self.connector.connect().await?;
            self.beat(&mut connection).await?;
            Ok(Established { connection, timeouts: Arc::default() })
        };
        timeout(CONNECT_TIMEOUT, connect).await.unwrap_or(Err(ConnectionError::Timeout(CONNECT_TIMEOUT)))
    }

    /// Waits until the connection is lost, which calls notice, or beats.
    async fn hold(&self, mut established: Established) {
        let mut state = self.state.subscribe();
        loop {
            tokio::select! {
                _ = state.wait_for(|state| !matches!(state, State::Connected(_))) => return,
                () = tokio::time::sleep(BEAT_INTERVAL) => {}
            }
            let beat = timeout(CONNECT_TIMEOUT, self.beat(&mut established.connection));
            match beat.await.unwrap_or(Err(ConnectionError::Timeout(CONNECT_TIMEOUT))) {
                Ok(()) => {}
                Err(error) => self.lose(Some(&established), &error),
            }
        }
    }

    async fn beat(&self, connection: &mut Connection) -> Result<(), ConnectionError> {
        let mut beat = self.beat.key(format!("{}:servers", self.key_prefix));
        let servers: u64 = connection.invoke(beat.arg(&self.id).arg(millis(ALIVE))).await?;
        self.servers.store(servers, Relaxed);
        Ok(())
    }

    /// Ends a connection, so that another one is made, or notes that none could be made. An error of a connection that has ended
    /// before does not end the one after it. The change is logged once.
    fn lose(&self, lost: Option<&Established>, error: &ConnectionError) {
        let is_changed = self.state.send_if_modified(|state| {
            let is_changed = match (&*state, lost) {
                (State::Connected(current), Some(lost)) => current.is(lost),
                (State::Connecting, None) => true,
                _ => false,
            };
            if is_changed {
                let text = format_args!("Redis is away, so that quotas are decided without it: {error}");
                *state = State::Away(Arc::new(self.context.warn(text)));
            }
            is_changed
        });
        if is_changed {
            self.connected.set(0);
            self.lost.add(1);
            tracing::warn!(%error, "Redis is away; quotas are decided without it until there is a connection");
        }
    }

    /// Makes a call, which takes up to `limit`.
    ///
    /// # Errors
    /// There is no connection, or Redis refuses the call or does not answer in time. Redis may have counted a call that it did not answer.
    pub(super) async fn call(&self, call: &CounterCall, limit: Duration) -> Result<Counted, StoreError> {
        let State::Connected(mut established) = self.state.borrow().clone() else {
            return Err(StoreError::Away);
        };
        let invocation = self.invocation(call);
        match timeout(limit, established.connection.invoke::<CallReply>(&invocation)).await {
            Ok(Ok((granted, valid, used, reset_after, is_repeated, lease, life, leased))) => {
                established.timeouts.store(0, Relaxed);
                Ok(Counted {
                    granted,
                    valid: Duration::from_millis(valid),
                    used,
                    reset_after: Duration::from_millis(reset_after),
                    is_repeated,
                    lease: (lease, Duration::from_millis(life)),
                    leased,
                })
            }
            Ok(Err(error)) => {
                if ends_connection(&error) {
                    self.lose(Some(&established), &ConnectionError::Redis(error.clone()));
                }
                Err(error.into())
            }
            Err(_) => {
                if established.timeouts.fetch_add(1, Relaxed) + 1 >= MOST_TIMEOUTS {
                    self.lose(Some(&established), &ConnectionError::Timeout(limit));
                }
                Err(StoreError::Timeout(limit))
            }
        }
    }

    fn invocation(&self, call: &CounterCall) -> ScriptInvocation<'_> {
        // Braces: all keys of a call are in one slot of a cluster.
        let counter = format!("{}:{{{:032x}}}", self.key_prefix, call.counter.0);
        let (answer, stored) = call.repeatable.map_or((0, Duration::ZERO), |(id, stored)| (id.0, stored));
        let (slots, leases) = (format!("{counter}:slots"), format!("{counter}:leases"));
        let answer = format!("{counter}:{answer:032x}");
        let lease = |id: u64| format!("{}-{id}", self.id);
        let mut invocation = self.call.prepare_invoke();
        invocation
            .key(counter)
            .key(slots)
            .key(leases)
            .key(answer)
            .arg(call.window.tick())
            .arg(call.window.ticks())
            .arg(call.max.min(MOST))
            .arg(call.amount.clamp(-MOST, MOST))
            .arg(u8::from(call.best_effort))
            .arg(u8::from(call.past_limit))
            .arg(millis(call.valid))
            .arg(millis(stored))
            .arg(lease(call.trip.id))
            .arg(call.trip.wanted)
            .arg(self.servers().unwrap_or(1));
        for returned in &call.trip.returned {
            invocation.arg(lease(returned.id)).arg(returned.used);
        }
        invocation
    }
}

/// Returns whether another connection may find a server that answers.
fn ends_connection(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, BusyLoading, ClusterDown, MasterDown, Moved, NoPerm, ReadOnly};
    match error.kind() {
        redis::ErrorKind::Server(kind) => {
            matches!(kind, Ask | BusyLoading | ClusterDown | MasterDown | Moved | NoPerm | ReadOnly)
        }
        // Such as NOAUTH, after a password was changed.
        redis::ErrorKind::Extension => error.code().is_some_and(|code| code.starts_with("NOAUTH")),
        _ => true,
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("connector", &self.connector).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use mixer_adapter_core::adapter::Faults;
    use test_debian::Redis;

    use super::*;
    use crate::{Params, RedisQuotaSettings};

    #[tokio::test]
    async fn an_error_of_a_former_connection_does_not_end_the_next_one() {
        let Some(redis) = Redis::start() else { return };
        let context = Context::detached(());
        let redis_server_url = format!("127.0.0.1:{}", redis.port());
        let params = Params { redis_server_url, ..Default::default() };
        let settings: RedisQuotaSettings = Faults::parse(params).unwrap();
        let connector = Connector::open(settings.servers, &context).await.unwrap();
        let store = Store::new(connector, "test".to_owned(), "server".to_owned(), CLOCK, context);
        let (former, next) = (store.connect().await.unwrap(), store.connect().await.unwrap());
        store.state.send_replace(State::Connected(next.clone()));
        store.lose(Some(&former), &ConnectionError::Timeout(ALIVE));
        assert!(store.is_connected());
        store.lose(Some(&next), &ConnectionError::Timeout(ALIVE));
        assert!(!store.is_connected());
        assert_eq!(store.lost.count(), 1);
    }
}
