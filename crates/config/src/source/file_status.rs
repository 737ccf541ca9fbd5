use futures_util::{FutureExt as _, future::BoxFuture};
use std::{collections::BTreeMap, future::ready};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::status::{
    CollectionStatus, Journal, Message, RefusedVersion, SourceHandle, SourceStatus, unix_time,
};
use crate::{bounded::join_texts, change::Change, offer::Decision};

/// The status of a source that offers its whole state in one update.
#[derive(Debug, Default)]
pub(super) struct FileStatus {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    source: Option<String>,
    journal: Journal,
    collections: BTreeMap<String, CollectionStatus>,
    accepted: Option<Instant>,
}

/// A summary of an update: collection, version, number of resources.
pub(super) type Offered = Vec<(String, String, usize)>;

impl FileStatus {
    /// Records an update that is offered.
    pub(super) fn offered(&self, source: &str, changes: &[Change]) -> Offered {
        let mut state = self.state.lock();
        state.source = Some(source.to_owned());
        let counted = changes
            .iter()
            .map(|change| (change.collection.to_string(), change.version.clone(), change.content.count()));
        let offered: Offered = counted.collect();
        let total: usize = offered.iter().map(|(_, _, count)| count).sum();
        state.record("push", format!("{total} in all"));
        offered
    }

    /// Records a decision on an update; later ones follow when it comes into use.
    pub(super) fn decided(&self, offered: &Offered, decision: &Decision) {
        let mut state = self.state.lock();
        let refusal = match decision {
            Decision::Live => {
                state.record("ack", String::new());
                state.accepted = Some(Instant::now());
                None
            }
            Decision::Pending => None,
            Decision::Refused(faults) | Decision::Unreadable(faults) => {
                let reason = join_texts(faults.iter().map(ToString::to_string));
                state.record("nack", reason.clone());
                Some(reason)
            }
        };
        for (collection, version, resources) in offered.iter().cloned() {
            let known = state.collections.entry(collection.clone()).or_default();
            known.collection = collection;
            known.pending = (*decision == Decision::Pending).then(|| version.clone());
            if *decision == Decision::Live {
                (known.version, known.resources, known.synced) = (version.clone(), resources, true);
            }
            known.refused = refusal.clone().map(|reason| RefusedVersion { version, reason });
        }
    }
}

impl State {
    fn record(&mut self, kind: &'static str, what: String) {
        let (collection, nonce) = (String::new(), String::new());
        self.journal.record(Message { time: unix_time(), stream: 0, kind, collection, nonce, what });
    }
}

impl SourceHandle for FileStatus {
    fn status(&self) -> BoxFuture<'_, Option<SourceStatus>> {
        let state = self.state.lock();
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
}
