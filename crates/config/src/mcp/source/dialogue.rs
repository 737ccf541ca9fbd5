use std::collections::BTreeMap;

use tonic::Status;

use super::{Catalogue, Machine, Meaning};
use crate::proto::istio::mcp::v1alpha1::{RequestResources, Resources};

/// A protocol as a source speaks it on one stream, without IO: requests go in, pushes come out.
pub(crate) trait Dialogue: Send {
    type Request: prost::Message;
    type Push: Send;

    /// A request arrived. An error ends the stream.
    fn on_request(&mut self, request: Self::Request, catalogue: &Catalogue) -> Result<Event, Status>;

    /// Whether [`next`](Self::next) has something to do.
    fn is_due(&self, catalogue: &Catalogue) -> bool;

    /// The next push. Without one, nothing is due until a request arrives or the catalogue changes.
    fn next(&mut self, catalogue: &Catalogue) -> Option<Self::Push>;
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
#[derive(Debug)]
pub(crate) struct SinkId {
    pub(crate) id: String,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Dialogue for Machine {
    type Request = RequestResources;
    type Push = Resources;

    fn on_request(&mut self, request: RequestResources, catalogue: &Catalogue) -> Result<Event, Status> {
        let collection = request.collection.clone();
        let node = request.sink_node.clone().filter(|node| !node.id.is_empty());
        let sink = node.map(|node| SinkId { id: node.id, annotations: node.annotations });
        let meaning = self.requested(request, catalogue)?;
        let sent = self.sent(&collection).map(|version| version.to_string());
        Ok(Event { sink, collection, meaning, sent })
    }

    fn is_due(&self, catalogue: &Catalogue) -> bool {
        Machine::is_due(self, catalogue)
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<Resources> {
        Machine::next(self, catalogue)
    }
}
