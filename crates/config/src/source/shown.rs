use std::{
    collections::BTreeMap,
    future::ready,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::{sync::Notify, time::Instant};

use super::{CollectionStatus, Journal, Message, Refusal, SourceHandle, SourceStatus, unix_time};
use crate::{Change, Verdict};

/// What can be seen of a source that sends all there is, in one update.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Asks for all there is once more.
    pub(super) again: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    source: Option<String>,
    journal: Journal,
    collections: BTreeMap<String, CollectionStatus>,
    accepted: Option<Instant>,
}

/// An update in short: collection, version, number of resources.
pub(super) type Offered = Vec<(String, String, usize)>;

impl Shown {
    /// An update goes out.
    pub(super) fn offered(&self, source: &str, changes: &[Change]) -> Offered {
        let mut state = self.lock();
        state.source = Some(source.to_owned());
        let counted = changes.iter().map(|change| {
            (change.collection.to_string(), change.version.clone(), change.content.resources().len())
        });
        let offered: Offered = counted.collect();
        let total: usize = offered.iter().map(|(_, _, count)| count).sum();
        state.record("push", format!("{total} in all"));
        offered
    }

    /// Records the verdict on an update.
    pub(super) fn decided(&self, offered: Offered, verdict: Verdict) {
        let mut state = self.lock();
        let refusal = verdict.err().map(|faults| faults.first().map(ToString::to_string).unwrap_or_default());
        match &refusal {
            None => {
                state.record("ack", String::new());
                state.accepted = Some(Instant::now());
            }
            Some(reason) => state.record("nack", reason.clone()),
        }
        for (collection, version, resources) in offered {
            let known = state.collections.entry(collection.clone()).or_default();
            known.collection = collection;
            match &refusal {
                None => {
                    *known = CollectionStatus {
                        version,
                        resources,
                        synced: true,
                        refused: None,
                        ..std::mem::take(known)
                    }
                }
                Some(reason) => known.refused = Some(Refusal { version, reason: reason.clone() }),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn record(&mut self, kind: &'static str, what: String) {
        let (collection, nonce) = (String::new(), String::new());
        self.journal.record(Message { time: unix_time(), stream: 0, kind, collection, nonce, what });
    }
}

impl SourceHandle for Shown {
    fn status(&self) -> BoxFuture<'_, Option<SourceStatus>> {
        let state = self.lock();
        let age = state.accepted.map(|at| at.elapsed().as_secs());
        let collections = state.collections.values().cloned();
        let status = state.source.as_ref().map(|source| SourceStatus {
            source: source.clone(),
            collections: collections
                .map(|known| CollectionStatus { accepted_seconds_ago: age, ..known })
                .collect(),
            messages: state.journal.snapshot(),
            ..SourceStatus::default()
        });
        ready(status).boxed()
    }

    fn reoffer(&self) -> BoxFuture<'_, ()> {
        self.again.notify_one();
        ready(()).boxed()
    }
}
