use std::{collections::BTreeMap, time::Instant};

use tonic::Status;

use super::{Catalogue, Pushed};
use crate::stream::Summarize;
use mixer_adapter_core::proto;

/// A protocol as a source speaks it on one stream, without IO: requests go in, pushes come out.
pub(crate) trait Dialogue: Send {
    type Request: prost::Message + Summarize;
    type Push: prost::Message + Summarize;

    /// A request arrived. An error ends the stream.
    fn on_request(&mut self, request: Self::Request, catalogue: &Catalogue) -> Result<Event, Status>;

    /// When to call [`elapsed`](Self::elapsed) next if nothing happens before.
    fn wakeup(&self) -> Option<Instant> {
        None
    }

    /// It is now that time.
    fn elapsed(&mut self, _now: Instant) {}

    /// Whether [`next`](Self::next) has something to do.
    fn is_due(&mut self, catalogue: &Catalogue) -> bool;

    /// The next push. Without one, nothing is due until a request arrives or the catalogue changes.
    fn next(&mut self, catalogue: &Catalogue) -> Option<Pushed<Self::Push>>;
}

/// What a request meant.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Meaning {
    /// It requests the collection.
    Requested,
    /// It accepts the push under way.
    Accepted,
    /// It refuses the push under way.
    Refused(proto::Status),
    /// It answers a push that is none, or is not under way any more, and changes nothing.
    Stale,
    /// It refuses what a source says first, as it should.
    Triggered,
}

/// What a request says, for those who look at the source.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) sink: Option<SinkId>,
    /// The collection, as the sink calls it.
    pub(crate) collection: String,
    pub(crate) meaning: Meaning,
    /// The version of the collection that was pushed last.
    pub(crate) sent: Option<String>,
}

/// Who a sink says it is.
#[derive(Debug, Default)]
pub(crate) struct SinkId {
    pub(crate) id: String,
    pub(crate) annotations: BTreeMap<String, String>,
}
