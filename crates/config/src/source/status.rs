//! The status of a source of configuration, whatever its kind.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Debug,
    time::{Duration, SystemTime},
};

use futures_util::future::BoxFuture;
use serde::Serialize;

use crate::bounded::{MAX_NAME, MAX_TEXT, truncate};

/// A handle to a running source.
pub trait SourceHandle: Debug + Send + Sync {
    /// Returns the state of the source, or `None` before it has started.
    fn status(&self) -> BoxFuture<'_, Option<SourceStatus>>;

    /// Returns warnings: that no connection of the source works, and what of it cannot be read.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns how long the source has been able to send changes; `None` while it cannot.
    fn connected_for(&self) -> Option<Duration> {
        Some(Duration::MAX)
    }
}

/// The status of a source, for people.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SourceStatus {
    /// The source, as `--config` names it.
    pub source: String,
    /// The id that this program sends to the source; empty for sources that need none.
    pub id: String,
    /// The annotations sent with the id.
    pub annotations: BTreeMap<String, String>,
    /// The connected peers.
    pub peers: Vec<String>,
    /// The last error of its streams, while none of them works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<StreamError>,
    /// The status of each collection.
    pub collections: Vec<CollectionStatus>,
    /// The last messages, the newest last.
    pub messages: Vec<Message>,
}

/// An error of the streams of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamError {
    /// The gRPC code and the text of the last one.
    pub error: String,
    /// When the first one came since a stream worked, in seconds since 1970.
    pub since: u64,
}

/// The status of one collection.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CollectionStatus {
    /// The collection.
    pub collection: String,
    /// Whether readiness waits for it.
    pub required: bool,
    /// The version in use.
    pub version: String,
    /// The number of resources in it.
    pub resources: usize,
    /// The version that was acknowledged and waits for other configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
    /// Whether it was pushed in this run, rather than read from the cache.
    pub synced: bool,
    /// Whether the source does not serve it.
    pub unsupported: bool,
    /// The time since something was accepted, in seconds.
    pub accepted_seconds_ago: Option<u64>,
    /// The version that was refused last and the reason, unless one was accepted since.
    pub refused: Option<RefusedVersion>,
}

/// A version that was refused.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedVersion {
    /// The version.
    pub version: String,
    /// The reason.
    pub reason: String,
}

/// A summary of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The time, in seconds since 1970.
    pub time: u64,
    /// The number of the stream since the start.
    pub stream: u64,
    /// The kind: `ask`, `ack` and `nack` are requests to the source, `push` is a message from it.
    pub kind: &'static str,
    /// The collection.
    pub collection: String,
    /// The nonce of the push, or of the answered push.
    pub nonce: String,
    /// The number of resources in a push, or the reason of a refusal.
    pub what: String,
}

/// The number of remembered messages, as in Istio's sinks.
const REMEMBERED: usize = 32;

/// The last messages of a source.
#[derive(Debug, Default)]
pub struct Journal(VecDeque<Message>);

impl Journal {
    /// Records a message, and drops the oldest of too many. Long texts are cut.
    pub fn record(&mut self, message: Message) {
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

    /// Returns the remembered messages, the newest last.
    pub fn snapshot(&self) -> Vec<Message> {
        self.0.iter().cloned().collect()
    }
}

/// Returns the time in seconds since 1970.
pub fn unix_time() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
