//! A list that is fetched from its provider, once before the handler opens and then at intervals.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bytes::Bytes;
use mixer_adapter_core::AdapterError;
use mixer_adapter_core::metrics::events;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at},
};

use super::{
    entries::{Entries, Kind},
    fetch::Fetcher,
    settings::Provider,
};

/// The list as it was fetched last; its refreshing ends when this is dropped.
#[derive(Debug)]
pub(super) struct Provided {
    current: Arc<RwLock<Current>>,
    _refreshing: JoinSet<()>,
}

impl Provided {
    /// Fetches the list and goes on to refresh it. A first fetch that fails is no reason to refuse the configuration
    /// (`TestBadUrl` of list_test.go): calls fail until one succeeds.
    pub(super) async fn start(provider: Provider, kind: Kind, overrides: Vec<String>) -> Self {
        let current = Arc::new(RwLock::new(Current::default()));
        let interval = provider.refresh_interval;
        let mut refresher = Refresher {
            fetcher: Fetcher::new(provider.url),
            ttl: provider.ttl,
            kind,
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

    /// The entries, unless there have never been any or they are too old.
    pub(super) fn entries(&self, now: Instant) -> Result<Arc<Entries>, AdapterError> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.entries(now).map_err(AdapterError::unavailable)
    }
}

/// What is known of the list.
#[derive(Debug, Default)]
struct Current {
    entries: Option<(Arc<Entries>, Instant)>,
    /// Why the last fetch failed, if it did.
    failure: Option<String>,
}

impl Current {
    /// The entries until the moment they are good for.
    fn entries(&self, now: Instant) -> Result<Arc<Entries>, String> {
        let failure = || self.failure.as_deref().unwrap_or("it was not fetched in time");
        match &self.entries {
            Some((entries, good_until)) if now < *good_until => Ok(entries.clone()),
            Some(_) => Err(format!("the list is too old: {}", failure())),
            None => Err(format!("there is no list: {}", failure())),
        }
    }

    fn replace(&mut self, entries: Entries, good_until: Instant) {
        *self = Self { entries: Some((Arc::new(entries), good_until)), failure: None };
    }

    /// The list was fetched and is the same.
    fn keep(&mut self, good_until: Instant) {
        self.failure = None;
        if let Some((_, good)) = &mut self.entries {
            *good = good_until;
        }
    }

    /// The old list stays. Returns whether the fetch before succeeded.
    fn fail(&mut self, reason: String) -> bool {
        self.failure.replace(reason).is_none()
    }
}

struct Refresher {
    fetcher: Fetcher,
    ttl: Duration,
    kind: Kind,
    overrides: Arc<[String]>,
    /// Which body the current entries were read from.
    fetched: Option<u64>,
    current: Arc<RwLock<Current>>,
}

impl Refresher {
    async fn refresh(&mut self) {
        let changed = self.fetch_changed().await;
        let good_until = Instant::now() + self.ttl;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        match changed {
            Ok(None) => current.keep(good_until),
            Ok(Some((fingerprint, entries))) => {
                tracing::info!(url = %self.fetcher.url(), "the list was fetched");
                current.replace(entries, good_until);
                self.fetched = Some(fingerprint);
            }
            Err(reason) => {
                events("listchecker", "fetches_failed").add(1);
                let reason = format!("fetching {} failed: {reason}", self.fetcher.url());
                match current.fail(reason.clone()) {
                    true => tracing::warn!("{reason}; the list stays as it is"),
                    false => tracing::debug!("{reason}"),
                }
            }
        }
    }

    /// The list as it is now, unless it is the one there is.
    async fn fetch_changed(&self) -> Result<Option<(u64, Entries)>, String> {
        let body = self.fetcher.fetch().await.map_err(|error| error.to_string())?;
        let fingerprint = fingerprint(&body);
        if self.fetched == Some(fingerprint) {
            return Ok(None);
        }
        let (kind, overrides) = (self.kind, self.overrides.clone());
        // A long list takes a while to read, and this thread serves calls.
        let entries = tokio::task::spawn_blocking(move || Entries::parse(kind, &body, &overrides))
            .await
            .map_err(|error| error.to_string())??;
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
        Entries::parse(Kind::Strings, b"ABC", &[]).unwrap()
    }

    #[test]
    fn a_list_is_good_for_its_ttl_and_fails_calls_afterwards() {
        let (start, ttl) = (Instant::now(), Duration::from_secs(300));
        let mut current = Current::default();
        assert_eq!(current.entries(start).unwrap_err(), "there is no list: it was not fetched in time");
        assert!(current.fail("500".to_owned()));
        assert_eq!(current.entries(start).unwrap_err(), "there is no list: 500");
        assert!(!current.fail("500".to_owned()));
        current.replace(entries(), start + ttl);
        assert!(current.entries(start + Duration::from_secs(299)).is_ok());
        assert!(current.fail("refused".to_owned()));
        assert!(current.entries(start + Duration::from_secs(299)).is_ok());
        assert_eq!(current.entries(start + ttl).unwrap_err(), "the list is too old: refused");
        current.keep(start + 2 * ttl);
        assert!(current.entries(start + ttl).is_ok());
    }
}
