//! The sink: subscribes to collections, and receives their pushes.

pub(crate) mod cache;
mod collection;
pub(crate) mod connect;
pub(crate) mod dialect;
pub(crate) mod driver;
pub(crate) mod exchange;
mod expiry;
mod health;
mod held;
mod machine;
pub(crate) mod nack;
mod process_push;
mod push;
mod request;
mod status;
mod stream;
pub(crate) mod type_urls;

use std::{collections::BTreeMap, time::Duration};

pub use cache::Cache;
pub use collection::{ProposalId, SinkCollection, SinkDecision};
pub use dialect::{Dialect, Received, Variant};
pub use driver::Sink;
pub use machine::{Closed, Output, SinkMachine};
pub use nack::{NackError, ResourceError};
pub use stream::StreamId;

use super::shorthand::Trace;
use crate::settings::Wanted;
use mixer_adapter_core::framework::settings;
use mixer_adapter_net::Rate;

/// Whether a sink requests changes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Never: every push is the whole collection.
    Full,
    /// After the first push of a stream, which is whole. Correct with every source known
    /// (docs/behaviour/mcp.md#incremental-pushes).
    FullFirst,
    /// From the start, with the versions that the sink has. Only for sources that honour them. Istio's sources do not:
    /// resources that are deleted while the sink is disconnected would remain.
    Resume,
    /// Always: every push after the first of a stream contains changes only. A sink that refuses one lacks these
    /// changes until it opens another stream, on which it sends its versions. The delta variant of xDS.
    Delta,
}

settings! {
    /// The settings of a sink.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct SinkOptions {
        /// The id of the sink, which should be unique, and the same after a restart.
        id: String = String::new(),
        /// The annotations that are sent with the id.
        annotations: BTreeMap<String, String> = BTreeMap::new(),
        /// The collections to request.
        collections: Vec<Wanted> = Vec::new(),
        /// Whether to request changes only.
        mode: Mode = Mode::FullFirst,
        /// Accepts the valid resources of a push that also has invalid ones, with the previous versions of these. Otherwise
        /// the push is refused.
        skip_bad_resources: bool = false,
        /// The rate of requests on one stream. Galley reads 100 at once and then one a second; further ones wait there, and
        /// none is lost.
        requests: Rate = Rate { burst: 100, every: Duration::from_millis(100) },
        /// The interval at which everything is requested again. Only for sources that do not push every change: MCP sources
        /// take a request for the answer to an unanswered push.
        resync: Option<Duration> = None,
        /// The observer of the messages of its streams.
        trace: Trace = Trace::default(),
    }
}

impl SinkOptions {
    /// Creates a sink with that id, for these collections, all of them required.
    pub fn new<C: Into<String>>(id: impl Into<String>, collections: impl IntoIterator<Item = C>) -> Self {
        Self {
            id: id.into(),
            collections: collections
                .into_iter()
                .map(|collection| Wanted::required(collection.into()))
                .collect(),
            ..Self::default()
        }
    }
}
