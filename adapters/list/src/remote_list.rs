//! A list that is fetched from a URL: once before the handler opens, then at intervals.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bytes::Bytes;
use mixer_adapter_core::metrics::events;
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, MissedTickBehavior, interval_at},
};

use super::{
    entries::{Entries, EntryType},
    error::{ListError, UnavailableError},
    fetch::{FetchError, Fetcher},
    settings::Provider,
};

/// The list as last fetched. Refreshing stops when this is dropped.
#[derive(Debug)]
pub(super) struct RemoteList {
    current: Arc<RwLock<Current>>,
    _refreshing: JoinSet<()>,
}

impl RemoteList {
    /// Fetches the list and starts to refresh it. If the first fetch fails, the configuration is accepted
    /// (`TestBadUrl` of list_test.go), and calls fail until a fetch succeeds.
    pub(super) async fn start(
        provider: Provider,
        fetcher: Fetcher,
        entry_type: EntryType,
        overrides: Vec<String>,
    ) -> Self {
        let current = Arc::new(RwLock::new(Current::default()));
        let interval = provider.refresh_interval;
        let mut refresher = Refresher {
            fetcher,
            ttl: provider.ttl,
            entry_type,
            overrides: overrides.into(),
            fetched: None,
            current: current.clone(),
        };
        refresher.refresh().await;
        let mut refreshing = JoinSet::new();
        refreshing.spawn(async move {
            let mut ticks = interval_at(Instant::now() + interval, interval);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                refresher.refresh().await;
            }
        });
        Self { current, _refreshing: refreshing }
    }

    /// Returns the entries.
    pub(super) fn entries(&self, now: Instant) -> Result<Arc<Entries>, UnavailableError> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.entries(now)
    }
}

/// The state of the list.
#[derive(Debug, Default)]
struct Current {
    entries: Option<(Arc<Entries>, Instant)>,
    /// The reason of the failure of the last fetch.
    failure: Option<String>,
}

impl Current {
    fn entries(&self, now: Instant) -> Result<Arc<Entries>, UnavailableError> {
        let reason = || self.failure.clone().unwrap_or_else(|| "it was not fetched in time".to_owned());
        match &self.entries {
            Some((entries, valid_until)) if now < *valid_until => Ok(entries.clone()),
            Some(_) => Err(UnavailableError::TooOld { reason: reason() }),
            None => Err(UnavailableError::NeverFetched { reason: reason() }),
        }
    }

    fn replace(&mut self, entries: Entries, valid_until: Instant) {
        *self = Self { entries: Some((Arc::new(entries), valid_until)), failure: None };
    }

    /// Extends the validity of an unchanged list.
    fn extend(&mut self, valid_until: Instant) {
        self.failure = None;
        if let Some((_, until)) = &mut self.entries {
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
}

struct Refresher {
    fetcher: Fetcher,
    ttl: Duration,
    entry_type: EntryType,
    overrides: Arc<[String]>,
    /// The fingerprint of the body of the current entries.
    fetched: Option<u64>,
    current: Arc<RwLock<Current>>,
}

impl Refresher {
    async fn refresh(&mut self) {
        let changed = self.fetch_changed().await;
        let valid_until = Instant::now() + self.ttl;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        match changed {
            Ok(None) => current.extend(valid_until),
            Ok(Some((fingerprint, entries))) => {
                tracing::info!(url = %self.fetcher.url(), "list fetched");
                current.replace(entries, valid_until);
                self.fetched = Some(fingerprint);
            }
            Err(error) => {
                events("listchecker", "fetches_failed").add(1);
                let reason = format!("fetching {} failed: {error}", self.fetcher.url());
                match current.fail(reason.clone()) {
                    true => tracing::warn!("{reason}; the list is unchanged"),
                    false => tracing::debug!("{reason}"),
                }
            }
        }
    }

    /// Fetches the list. Returns `None` if it is unchanged.
    async fn fetch_changed(&self) -> Result<Option<(u64, Entries)>, RefreshError> {
        let body = self.fetcher.fetch().await?;
        let fingerprint = fingerprint(&body);
        if self.fetched == Some(fingerprint) {
            return Ok(None);
        }
        let (entry_type, overrides) = (self.entry_type, self.overrides.clone());
        // Parsing a long list would delay calls on this thread.
        let entries =
            tokio::task::spawn_blocking(move || Entries::parse(entry_type, &body, &overrides)).await??;
        Ok(Some((fingerprint, entries)))
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

    fn entries() -> Entries {
        Entries::parse(EntryType::Strings, b"ABC", &[]).unwrap()
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
        current.replace(entries(), start + ttl);
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
