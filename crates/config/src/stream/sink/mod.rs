//! The sink: asks for collections, and takes what sources push.

mod answer;
mod cache;
mod collection;
pub(crate) mod connect;
mod deadlines;
mod dialect;
pub(crate) mod driver;
pub(crate) mod exchange;
mod held;
mod machine;
mod nack;
mod push;
mod request;
mod status;
mod stream;
mod type_urls;
mod view;

use std::{collections::BTreeMap, time::Duration};

pub use cache::Cache;
pub use collection::ProposalId;
pub use dialect::{Dialect, Received, Variant};
pub use driver::Sink;
pub use machine::{Closed, Output, SinkDecision, SinkMachine};
pub use nack::{NackError, ResourceError};
pub use stream::StreamId;
pub(crate) use type_urls::{Answer, Arrived, TypeUrls};
pub use view::CollectionView;

use super::{Rate, Trace};
use crate::source::Wanted;
use mixer_adapter_core::framework::setters;

/// Whether a sink asks for changes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Never: every push is the whole collection.
    Full,
    /// After the first push of a stream, which is whole. Correct with every source known
    /// (docs/behaviour/mcp.md#incremental-pushes).
    FullFirst,
    /// From the start, telling the source what the sink has. Only for sources that heed it: those of Istio do not, and what is
    /// deleted while the sink is away stays for ever.
    Resume,
    /// There is nothing else: whatever comes after the first push of a stream is changes alone. Who refuses some lacks them from
    /// then on, and has to open another stream on which it sends its versions. The delta variant of xDS.
    Delta,
}

/// The settings of a sink.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SinkOptions {
    /// The id of the sink; it should be its own, and the same after a restart.
    pub id: String,
    /// The annotations that are sent to sources with the id.
    pub annotations: BTreeMap<String, String>,
    /// What to ask for.
    pub collections: Vec<Wanted>,
    /// Whether to ask for changes alone.
    pub mode: Mode,
    /// Takes the good resources of a push that has bad ones, and keeps what it had of the bad ones. Otherwise the push is
    /// refused.
    pub skip_bad_resources: bool,
    /// Requests on one stream. Galley takes 100 at once and then one a second; the others wait there, and nothing is lost.
    pub requests: Rate,
    /// Answers that follow from no change, for one collection of a stream: to pushes that are equal to what the sink has, or that are
    /// refused as the one before. Slows a source down that sends the same again and again.
    pub idle_replies: Rate,
    /// The interval at which one unsupported collection is asked for again.
    pub retry_unsupported: Duration,
    /// The interval at which everything is asked for again. Only for sources that do not push every change by
    /// themselves: those of MCP take a question for the answer to the push that is under way.
    pub resync: Option<Duration>,
    /// Who is shown the messages of its streams.
    pub trace: Trace,
}

setters!(SinkOptions {
    id: String,
    annotations: BTreeMap<String, String>,
    collections: Vec<Wanted>,
    mode: Mode,
    skip_bad_resources: bool,
    requests: Rate,
    idle_replies: Rate,
    retry_unsupported: Duration,
    resync: Option<Duration>,
});

impl SinkOptions {
    /// A sink of that id, for these collections, all of them required.
    pub fn new<C: Into<String>>(id: impl Into<String>, collections: impl IntoIterator<Item = C>) -> Self {
        let wanted = |collection: C| Wanted { collection: collection.into(), required: true };
        Self {
            id: id.into(),
            annotations: BTreeMap::new(),
            collections: collections.into_iter().map(wanted).collect(),
            mode: Mode::FullFirst,
            skip_bad_resources: false,
            requests: Rate { burst: 100, every: Duration::from_millis(100) },
            idle_replies: Rate { burst: 10, every: Duration::from_secs(5) },
            retry_unsupported: Duration::from_secs(600),
            resync: None,
            trace: Trace::default(),
        }
    }
}
