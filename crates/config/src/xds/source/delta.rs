use tonic::Status;

use super::{
    message,
    node::{RequestContext, sink_id},
    subscription::Subscription,
    types::{Push, Types},
    watch::{Representation, Watch},
};
use crate::{
    mcp::source::{Catalogue, Dialogue, Event, Meaning},
    proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
};

/// One stream of changes: each push of a type says what was added, changed and removed.
#[derive(Debug)]
pub struct DeltaStream {
    context: RequestContext,
    types: Types,
}

impl DeltaStream {
    /// A stream that has just opened: of all types, or of one.
    pub fn new(only: Option<&'static str>) -> Self {
        Self { context: RequestContext::new(only), types: Types::new(|_| Representation::Changes) }
    }

    /// A request arrived. An error ends the stream.
    pub fn requested(&mut self, request: DeltaDiscoveryRequest) -> Result<Meaning, Status> {
        let url = self.context.type_url(&request.type_url, request.node.as_ref())?;
        let (more, less) = (&request.resource_names_subscribe, &request.resource_names_unsubscribe);
        let Some(known) = self.types.get(&url) else {
            let mut subscription = Subscription::new(self.context.explicit());
            let mut owed = subscription.add(more, true)?;
            owed.names.extend(subscription.remove(less));
            self.types.open(&url, Watch::new(subscription, owed, request.initial_resource_versions))?;
            return Ok(Meaning::Asked);
        };
        let watch = &mut known.watch;
        // What is wanted changes whatever push this answers (rule 7).
        let mut owed = watch.subscription().add(more, false)?;
        owed.names.extend(watch.subscription().remove(less));
        let nonce = watch.nonce(&request.response_nonce);
        Ok(watch.answered(nonce, owed, request.error_detail))
    }

    /// The next push, if one is due.
    pub fn next(&mut self, catalogue: &Catalogue) -> Option<DeltaDiscoveryResponse> {
        let Push { url, nonce, content } = self.types.next(catalogue)?;
        Some(DeltaDiscoveryResponse {
            system_version_info: content.version,
            resources: content.entries.iter().map(|entry| message::resource(entry, &url)).collect(),
            type_url: url.to_string(),
            nonce,
            removed_resources: content.removed.iter().map(|name| name.to_string()).collect(),
            control_plane: Some(message::control_plane()),
        })
    }
}

impl Dialogue for DeltaStream {
    type Request = DeltaDiscoveryRequest;
    type Push = DeltaDiscoveryResponse;

    fn on_request(&mut self, request: DeltaDiscoveryRequest, _: &Catalogue) -> Result<Event, Status> {
        let sink = request.node.as_ref().map(sink_id);
        let url = self.context.type_url(&request.type_url, None)?;
        let meaning = self.requested(request)?;
        Ok(Event { sink, meaning, sent: self.types.version(&url), collection: url })
    }

    fn is_due(&self, catalogue: &Catalogue) -> bool {
        self.types.is_due(catalogue)
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<DeltaDiscoveryResponse> {
        DeltaStream::next(self, catalogue)
    }
}
