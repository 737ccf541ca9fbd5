//! A list that is fetched from a URL: once before the handler opens, then at intervals.

use bytes::Bytes;
use mixer_adapter_core::{
    Context,
    log::{LogLimit, log_text},
    metrics::Events,
};
use mixer_adapter_net::{HttpError, grpc::CallMemory};
use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use parking_lot::RwLock;
use tokio::{
    task::JoinError,
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};

use super::{
    entries::{Entries, EntryType},
    error::{ListError, UnavailableError},
    fetch::{FetchError, Fetcher},
    settings::Provider,
};

/// How long a handler that opens waits for its turn to ask the host. It opens without a list then.
const FIRST_TURN: Duration = Duration::from_secs(1);

/// The list as last fetched. Refreshing ends with the handler.
#[derive(Debug)]
pub(super) struct RemoteList {
    current: Arc<RwLock<Current>>,
}

impl RemoteList {
    /// Fetches the list and starts to refresh it. If the first fetch fails, the configuration is accepted
    /// (`TestBadUrl` of list_test.go), and calls fail until a fetch succeeds.
    pub(super) async fn start(
        provider: Provider,
        context: &Context,
        entry_type: EntryType,
        overrides: Vec<String>,
    ) -> Self {
        let current = Arc::new(RwLock::new(Current::default()));
        let interval = provider.refresh_interval;
        let mut refresher = Refresher {
            fetcher: Fetcher::new(provider.url, context),
            ttl: provider.ttl,
            entry_type,
            overrides: overrides.into(),
            current: current.clone(),
            failed: context.metrics().events("fetches_failed"),
            over_memory: context.metrics().events("lists_over_memory"),
            slowness_log: context.shared(LogLimit::new),
            slowness_logged: false,
        };
        let next = match timeout(FIRST_TURN, refresher.fetcher.turn()).await {
            Ok(()) => {
                refresher.refresh().await;
                Instant::now() + interval
            }
            Err(_) => {
                let mut current = refresher.current.write();
                current.fail("its host is asked ten times a second at most; its turn comes".to_owned());
                Instant::now()
            }
        };
        context.spawn(async move {
            let mut ticks = interval_at(next, interval);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                let due = ticks.tick().await;
                refresher.fetcher.refresh_turn().await;
                if due.elapsed() >= interval {
                    refresher.log_slowness(interval);
                }
                refresher.refresh().await;
            }
        });
        Self { current }
    }

    /// Returns the entries.
    pub(super) fn entries(&self, now: Instant) -> Result<Arc<Entries>, UnavailableError> {
        let current = self.current.read();
        current.entries(now)
    }

    /// Returns about how much memory the list takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let current = self.current.read();
        current.list.as_ref().map_or(0, |(list, _)| list.bytes)
    }
}

/// A list that was fetched.
#[derive(Debug)]
struct FetchedList {
    entries: Arc<Entries>,
    /// The fingerprint of its body.
    fingerprint: u64,
    bytes: usize,
    /// Its share of the memory for all lists.
    _memory: Option<CallMemory>,
}

/// The state of the list.
#[derive(Debug, Default)]
struct Current {
    list: Option<(FetchedList, Instant)>,
    /// The reason of the failure of the last fetch.
    failure: Option<String>,
}

impl Current {
    fn entries(&self, now: Instant) -> Result<Arc<Entries>, UnavailableError> {
        if let Some((list, valid_until)) = &self.list
            && now < *valid_until
        {
            return Ok(list.entries.clone());
        }
        let reason = self.failure.clone().unwrap_or_else(|| "it was not fetched in time".to_owned());
        Err(match self.list {
            Some(_) => UnavailableError::TooOld { reason },
            None => UnavailableError::NeverFetched { reason },
        })
    }

    fn replace(&mut self, list: FetchedList, valid_until: Instant) {
        *self = Self { list: Some((list, valid_until)), failure: None };
    }

    /// Extends the validity of an unchanged list.
    fn extend(&mut self, valid_until: Instant) {
        self.failure = None;
        if let Some((_, until)) = &mut self.list {
            *until = valid_until;
        }
    }

    /// Records a failure, and returns whether the previous fetch succeeded.
    fn fail(&mut self, reason: String) -> bool {
        self.failure.replace(reason).is_none()
    }
}

/// A failure to refresh the list.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum RefreshError {
    Fetch(#[from] FetchError),
    List(#[from] ListError),
    Task(#[from] JoinError),
    Memory(#[from] OverMemoryError),
}

/// A list for which none of the memory of all lists is left.
#[derive(Debug, thiserror::Error)]
#[error(
    "no memory is left for the list: those of all calls, sessions and servers may take a twelfth of --memory-limit"
)]
struct OverMemoryError;

impl RefreshError {
    fn is_over_memory(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Fetch(FetchError::Http(HttpError::NoMemory)))
    }
}

struct Refresher {
    fetcher: Fetcher,
    ttl: Duration,
    entry_type: EntryType,
    overrides: Arc<[String]>,
    current: Arc<RwLock<Current>>,
    failed: Events,
    over_memory: Events,
    slowness_log: Arc<LogLimit>,
    slowness_logged: bool,
}

impl Refresher {
    async fn refresh(&self) {
        let changed = self.fetch_changed().await;
        let valid_until = Instant::now() + self.ttl;
        let mut current = self.current.write();
        match changed {
            Ok(None) => current.extend(valid_until),
            Ok(Some(list)) => {
                tracing::info!(url = %self.fetcher.url, "list fetched");
                current.replace(list, valid_until);
            }
            Err(error) => {
                self.failed.add(1);
                self.over_memory.add(error.is_over_memory().into());
                let reason = format!("fetching {} failed: {error}", self.fetcher.url);
                if current.fail(reason.clone()) {
                    tracing::warn!("{reason}; the list is unchanged")
                } else {
                    tracing::debug!("{reason}")
                }
            }
        }
    }

    /// Fetches the list. Returns `None` if it is unchanged.
    async fn fetch_changed(&self) -> Result<Option<FetchedList>, RefreshError> {
        let memory = self.fetcher.shared.as_ref().map(|shared| shared.memory());
        let body = self.fetcher.fetch(memory.as_ref()).await?;
        let fingerprint = fingerprint(&body);
        if self.fingerprint() == Some(fingerprint) {
            return Ok(None);
        }
        let count = |bytes: usize| match &memory {
            Some(memory) => memory.resize(bytes).map_err(|_| OverMemoryError),
            None => Ok(()),
        };
        let mut bytes = Entries::max_bytes(self.entry_type, &body);
        count(body.len() + bytes)?;
        let _reading = match &self.fetcher.shared {
            Some(shared) => shared.reading.acquire().await.ok(),
            None => None,
        };
        let (entry_type, overrides) = (self.entry_type, self.overrides.clone());
        // Parsing a long list would delay calls on this thread.
        let entries =
            tokio::task::spawn_blocking(move || Entries::parse(entry_type, &body, &overrides)).await??;
        bytes += entries.compiled_bytes();
        count(bytes)?;
        Ok(Some(FetchedList { entries: Arc::new(entries), fingerprint, bytes, _memory: memory }))
    }

    /// Returns the fingerprint of the body of the current entries.
    fn fingerprint(&self) -> Option<u64> {
        let current = self.current.read();
        current.list.as_ref().map(|(list, _)| list.fingerprint)
    }

    /// Logs once that the handlers of the host together ask for more than it gets.
    fn log_slowness(&mut self, refresh_interval: Duration) {
        if !self.slowness_logged
            && let Some(suppressed) = self.slowness_log.admit()
        {
            self.slowness_logged = true;
            tracing::warn!(
                url = log_text(&self.fetcher.url),
                ?refresh_interval,
                suppressed,
                "list is refreshed less often than its refresh_interval: all handlers together ask a host ten times a second at most"
            );
        }
    }
}

fn fingerprint(body: &Bytes) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn list() -> FetchedList {
        let entries = Entries::parse(EntryType::Strings, b"ABC", &[]).unwrap();
        FetchedList { entries: Arc::new(entries), fingerprint: 0, bytes: 0, _memory: None }
    }

    #[test]
    fn a_list_is_valid_for_its_ttl_and_fails_calls_afterwards() {
        let (start, ttl) = (Instant::now(), Duration::from_secs(300));
        let mut current = Current::default();
        assert_eq!(
            current.entries(start).unwrap_err().to_string(),
            "there is no list: it was not fetched in time"
        );
        assert!(current.fail("500".to_owned()));
        assert_eq!(current.entries(start).unwrap_err().to_string(), "there is no list: 500");
        assert!(!current.fail("500".to_owned()));
        current.replace(list(), start + ttl);
        assert!(current.entries(start + Duration::from_secs(299)).is_ok());
        assert!(current.fail("refused".to_owned()));
        assert!(current.entries(start + Duration::from_secs(299)).is_ok());
        assert_eq!(
            current.entries(start + ttl).unwrap_err().to_string(),
            "the list is older than its ttl: refused"
        );
        current.extend(start + 2 * ttl);
        assert!(current.entries(start + ttl).is_ok());
    }
}
