use std::collections::BTreeMap;

use tonic::Status;

use super::{
    message,
    node::{RequestContext, sink_id},
    order::Traits,
    subscription::{Owed, Subscription},
    types::{Push, Types},
    watch::{Nonce, Representation, Watch},
};
use crate::{
    mcp::source::{Catalogue, Dialogue, Event, Meaning},
    proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
};

/// One stream of the state of the world: each push of a type holds all that is wanted of it, or all that is new.
#[derive(Debug)]
pub struct SotwStream {
    context: RequestContext,
    types: Types,
}

impl SotwStream {
    /// A stream that has just opened: of all types, or of one.
    pub fn new(only: Option<&'static str>) -> Self {
        let form = |traits: Traits| if traits.whole { Representation::Whole } else { Representation::Parts };
        Self { context: RequestContext::new(only), types: Types::new(form) }
    }

    /// A request arrived. An error ends the stream.
    pub fn requested(&mut self, request: DiscoveryRequest) -> Result<Meaning, Status> {
        let url = self.context.type_url(&request.type_url, request.node.as_ref())?;
        let Some(known) = self.types.get(&url) else {
            // Whatever its nonce says: istiod sends the time in that of its first.
            let mut subscription = Subscription::new(self.context.explicit());
            let owed = subscription.replace(&request.resource_names)?;
            self.types.open(&url, Watch::new(subscription, owed, BTreeMap::new()))?;
            return Ok(Meaning::Asked);
        };
        let watch = &mut known.watch;
        let nonce = watch.nonce(&request.response_nonce);
        if nonce == Nonce::Stale {
            return Ok(Meaning::Stale);
        }
        let mut owed = watch.subscription().replace(&request.resource_names)?;
        // A request of its own is for all there is, unless that is on its way.
        if (nonce == Nonce::None && !watch.is_pending()) || (nonce != Nonce::None && known.warms) {
            owed = Owed::all();
        }
        Ok(watch.answered(nonce, owed, request.error_detail))
    }

    /// The next push, if one is due.
    pub fn next(&mut self, catalogue: &Catalogue) -> Option<DiscoveryResponse> {
        let Push { url, nonce, content } = self.types.next(catalogue)?;
        Some(DiscoveryResponse {
            version_info: content.version,
            resources: content.entries.iter().map(|entry| message::any(entry, &url)).collect(),
            canary: false,
            type_url: url.to_string(),
            nonce,
            control_plane: Some(message::control_plane()),
        })
    }
}

impl Dialogue for SotwStream {
    type Request = DiscoveryRequest;
    type Push = DiscoveryResponse;

    fn on_request(&mut self, request: DiscoveryRequest, _: &Catalogue) -> Result<Event, Status> {
        let sink = request.node.as_ref().map(sink_id);
        let url = self.context.type_url(&request.type_url, None)?;
        let meaning = self.requested(request)?;
        Ok(Event { sink, meaning, sent: self.types.version(&url), collection: url })
    }

    fn is_due(&self, catalogue: &Catalogue) -> bool {
        self.types.is_due(catalogue)
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<DiscoveryResponse> {
        SotwStream::next(self, catalogue)
    }
}
