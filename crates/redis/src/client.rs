//! The connection, whose loss is noticed, and which is established again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use mixer_adapter_net::Backoff;
use redis::{Cmd, FromRedisValue, RedisError, Script, ScriptInvocation, ServerErrorKind};
use tokio::{sync::watch, time::timeout};

use crate::{
    CLOCK,
    connector::{CONNECT_TIMEOUT, Connection, ConnectionError, Connector},
    millis,
};

const BEAT: &str = include_str!("beat.lua");

/// The delays between attempts to connect.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };
/// How often a server notes that it lives, and so notices that Redis does not answer.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long after a connection the other servers are connected, too: their attempts are up to 7 s apart.
const ALL_BACK: Duration = Duration::from_secs(10);
/// How long a server counts as alive.
const ALIVE: Duration = Duration::from_secs(10);
/// The number of calls without an answer, one after the other, that ends a connection.
const MOST_TIMEOUTS: u32 = 3;

/// A call that Redis did not answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Redis is disconnected, and the call was not sent.
    #[error("there is no connection to Redis")]
    Away,
    /// The time of the call is over. Redis may have run it.
    #[error("Redis did not answer within {0:?}")]
    Timeout(Duration),
    /// Redis refuses the call, or the connection broke.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

/// Whether there is a connection.
#[derive(Clone)]
enum State {
    Connecting,
    Connected(Established),
    Away,
}

/// A connection that has proved that it can write. Clones are the same.
#[derive(Clone)]
struct Established {
    connection: Connection,
    /// The number of calls in a row without an answer.
    timeouts: Arc<AtomicU32>,
    /// When it was established, if Redis was away before.
    back_since: Option<Instant>,
}

impl Established {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.timeouts, &other.timeouts)
    }
}

type OnChange = Box<dyn Fn(Option<&ConnectionError>) + Send + Sync>;

/// A client of a Redis that several servers share.
pub struct Client {
    connector: Connector,
    beat: Script,
    key_prefix: String,
    /// The name of this server among those with the same keys.
    id: String,
    state: watch::Sender<State>,
    /// The number of servers that live; 0 before the first answer of Redis.
    servers: AtomicU64,
    on_change: OnChange,
}

impl Client {
    /// Creates a client without a connection, which [`maintain`](Self::maintain) establishes. `id` is the name of this server among those
    /// with the same `key_prefix`. Calls `on_change` with `None` when a connection is established, and with the reason when it is
    /// lost or the first attempt fails; it must not use the client.
    pub fn new(
        connector: Connector,
        key_prefix: String,
        id: String,
        on_change: impl Fn(Option<&ConnectionError>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            connector,
            beat: Script::new(&format!("{CLOCK}{BEAT}")),
            key_prefix,
            id,
            state: watch::Sender::new(State::Connecting),
            servers: AtomicU64::new(0),
            on_change: Box::new(on_change),
        }
    }

    /// Returns the start of the names of all keys.
    pub fn key_prefix(&self) -> &str {
        &self.key_prefix
    }

    /// Returns the name of this server.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the number of servers that live, from the last answer of Redis; `None` before the first. After Redis was away it is
    /// not less than before until all servers can be connected again.
    pub fn servers(&self) -> Option<u64> {
        Some(self.servers.load(Relaxed)).filter(|servers| *servers > 0)
    }

    /// Returns whether there is a connection.
    pub fn is_connected(&self) -> bool {
        matches!(*self.state.borrow(), State::Connected(_))
    }

    /// Returns whether Redis is away, or was so recently that other servers may not be connected again.
    pub fn was_away(&self) -> bool {
        match &*self.state.borrow() {
            State::Connecting => false,
            State::Connected(established) => {
                established.back_since.is_some_and(|since| since.elapsed() < ALL_BACK)
            }
            State::Away => true,
        }
    }

    /// Waits until the first attempt to connect has ended.
    pub async fn attempted(&self) {
        let mut state = self.state.subscribe();
        // The sender is not dropped.
        let _ = state.wait_for(|state| !matches!(state, State::Connecting)).await;
    }

    /// Keeps a connection as long as it is polled.
    pub async fn maintain(self: Arc<Self>) {
        let mut delays = BACKOFF.delays();
        loop {
            match self.connect().await {
                Ok(mut established) => {
                    delays.reset();
                    self.state.send_modify(|state| {
                        established.back_since = matches!(state, State::Away).then(Instant::now);
                        *state = State::Connected(established.clone());
                        (self.on_change)(None);
                    });
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
            Ok(Established { connection, timeouts: Arc::default(), back_since: None })
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
        if self.was_away() {
            self.servers.fetch_max(servers, Relaxed);
        } else {
            self.servers.store(servers, Relaxed);
        }
        Ok(())
    }

    /// Ends a connection, so that another one is made, or notes that none could be made. An error of a connection that has ended
    /// before does not end the one after it. The change is reported once.
    fn lose(&self, lost: Option<&Established>, error: &ConnectionError) {
        self.state.send_if_modified(|state| {
            let is_changed = match (&*state, lost) {
                (State::Connected(current), Some(lost)) => current.is(lost),
                (State::Connecting, None) => true,
                _ => false,
            };
            if is_changed {
                *state = State::Away;
                (self.on_change)(Some(error));
            }
            is_changed
        });
    }

    /// Runs a script, which takes up to `limit`.
    ///
    /// # Errors
    /// Redis is disconnected, refuses the call, or does not answer in time. It may have run an unanswered call.
    pub async fn invoke<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
        limit: Duration,
    ) -> Result<T, ClientError> {
        self.answer(limit, async |connection: &mut Connection| connection.invoke(call).await).await
    }

    /// Runs a command, which takes up to `limit`.
    ///
    /// # Errors
    /// As of [`invoke`](Self::invoke).
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd, limit: Duration) -> Result<T, ClientError> {
        self.answer(limit, async |connection: &mut Connection| connection.query(command).await).await
    }

    async fn answer<T>(
        &self,
        limit: Duration,
        call: impl AsyncFnOnce(&mut Connection) -> Result<T, RedisError>,
    ) -> Result<T, ClientError> {
        let State::Connected(mut established) = self.state.borrow().clone() else {
            return Err(ClientError::Away);
        };
        match timeout(limit, call(&mut established.connection)).await {
            Ok(Ok(answer)) => {
                established.timeouts.store(0, Relaxed);
                Ok(answer)
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
                Err(ClientError::Timeout(limit))
            }
        }
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

mixer_adapter_core::framework::debug_fields!(Client { connector });

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use mixer_adapter_core::Context;
    use test_debian::Redis;

    use super::*;
    use crate::Servers;

    #[tokio::test]
    async fn an_error_of_a_former_connection_does_not_end_the_next_one() {
        let Some(redis) = Redis::start() else { return };
        let servers = Servers::parse(&format!("redis://127.0.0.1:{}", redis.port())).unwrap();
        let connector = Connector::open(servers, &Context::detached(())).await.unwrap();
        let lost = Arc::new(AtomicU32::new(0));
        let counter = lost.clone();
        let on_change = move |error: Option<&ConnectionError>| {
            counter.fetch_add(u32::from(error.is_some()), Relaxed);
        };
        let client = Client::new(connector, "test".to_owned(), "server".to_owned(), on_change);
        let (former, next) = (client.connect().await.unwrap(), client.connect().await.unwrap());
        client.state.send_replace(State::Connected(next.clone()));
        client.lose(Some(&former), &ConnectionError::Timeout(ALIVE));
        assert!(client.is_connected());
        client.lose(Some(&next), &ConnectionError::Timeout(ALIVE));
        assert!(!client.is_connected());
        assert_eq!(lost.load(Relaxed), 1);
    }
}
