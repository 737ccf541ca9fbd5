//! What a source of configuration shows of itself, whatever kind it is.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Debug,
    time::{Duration, SystemTime},
};

use futures_util::future::BoxFuture;
use serde::Serialize;

use crate::{MAX_TEXT, bounded::MAX_NAME, truncate};

/// A handle to a running source.
pub trait SourceHandle: Debug + Send + Sync {
    /// Returns the state of the source, or `None` before it has started.
    fn status(&self) -> BoxFuture<'_, Option<SourceStatus>>;
}

/// What a source of configuration does, for people.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct SourceStatus {
    /// The source, as `--config` names it.
    pub source: String,
    /// The id that this program sends to the source; empty for sources that need none.
    pub id: String,
    /// The annotations sent with the id.
    pub annotations: BTreeMap<String, String>,
    /// The connected peers.
    pub peers: Vec<String>,
    /// What is known of each collection.
    pub collections: Vec<CollectionStatus>,
    /// The last messages, the newest last.
    pub messages: Vec<Message>,
}

/// What is known of one collection.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct CollectionStatus {
    /// The collection.
    pub collection: String,
    /// Whether the program is ready only with it.
    pub required: bool,
    /// The version in use.
    pub version: String,
    /// The number of resources in it.
    pub resources: usize,
    /// The version that was acknowledged and waits for other configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
    /// Whether it is of this run, rather than from the cache.
    pub synced: bool,
    /// Whether the source does not serve it.
    pub unsupported: bool,
    /// How long ago something was accepted last, in seconds.
    pub accepted_seconds_ago: Option<u64>,
    /// The version that was refused last and why, unless one was accepted since.
    pub refused: Option<Refusal>,
}

/// A version that was refused.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Refusal {
    /// The version.
    pub version: String,
    /// Why.
    pub reason: String,
}

/// A message in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Message {
    /// When, in seconds since 1970.
    pub time: u64,
    /// The stream, counted since the start.
    pub stream: u64,
    /// `ask`, `ack` and `nack` went to the source, `push` came from it.
    pub kind: &'static str,
    /// The collection.
    pub collection: String,
    /// What names the push that it is, or answers.
    pub nonce: String,
    /// The number of resources in a push, or the reason of a refusal.
    pub what: String,
}

/// How many messages are remembered: as many as in Istio's sinks.
const REMEMBERED: usize = 32;

/// The last messages.
#[derive(Debug, Default)]
pub(crate) struct Journal(VecDeque<Message>);

impl Journal {
    /// Records a message, which may push out the oldest. Long texts are cut.
    pub(crate) fn record(&mut self, message: Message) {
        let message = Message {
            collection: truncate(&message.collection, MAX_NAME),
            nonce: truncate(&message.nonce, MAX_NAME),
            what: truncate(&message.what, MAX_TEXT),
            ..message
        };
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(message);
    }

    /// What is remembered, the newest last.
    pub(crate) fn snapshot(&self) -> Vec<Message> {
        self.0.iter().cloned().collect()
    }
}

/// The time, in seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
