use std::{collections::BTreeMap, time::Instant};

use tonic::Status;

use super::{catalogue::Catalogue, pushed::Pushed};
use crate::stream::shorthand::Summarize;
use mixer_adapter_core::proto;

/// The protocol of a source on one stream, without I/O: requests go in, pushes come out.
pub(crate) trait Dialogue: Send {
    type Request: prost::Message + Summarize + 'static;
    type Push: prost::Message + Summarize + 'static;

    /// Handles a request. An error ends the stream.
    fn on_request(&mut self, request: Self::Request, catalogue: &Catalogue) -> Result<Event, Status>;

    /// Returns the time of the next call of [`elapsed`](Self::elapsed) if nothing happens before.
    fn wakeup(&self) -> Option<Instant> {
        None
    }

    /// Handles the passing of that time.
    fn elapsed(&mut self, _now: Instant) {}

    /// Returns about how many bytes the names of resources take that it holds for its client.
    fn names_size(&self) -> usize;

    /// Returns whether [`next`](Self::next) would do something.
    fn is_due(&mut self, catalogue: &Catalogue) -> bool;

    /// Returns the next push. Without one, nothing is due until a request arrives or the catalogue changes.
    fn next(&mut self, catalogue: &Catalogue) -> Option<Pushed<Self::Push>>;
}

/// The meaning of a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Meaning {
    /// It requests the collection.
    Requested,
    /// It accepts the unanswered push.
    Accepted,
    /// It refuses the unanswered push.
    Refused(proto::Status),
    /// It answers another push, which is unknown or was answered before, and changes nothing.
    Stale,
    /// It refuses the trigger, as it should.
    Triggered,
}

/// A request, for observers of the source.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) sink: Option<SinkId>,
    /// The collection as the sink names it.
    pub(crate) collection: String,
    pub(crate) meaning: Meaning,
    /// The version of the collection that was pushed last.
    pub(crate) sent: Option<String>,
}

/// The identity that a sink states.
#[derive(Debug, Default)]
pub(crate) struct SinkId {
    pub(crate) id: String,
    pub(crate) annotations: BTreeMap<String, String>,
}
