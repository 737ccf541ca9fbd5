use std::time::Instant;

use tonic::Status;

use super::{
    message,
    stream::{Names, Request, XdsStream},
    types::Push,
};
use crate::{
    proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
    stream::source::{Catalogue, Dialogue, Encoding, Event, Meaning, Pushed},
};

/// One stream of changes: each push of a type says what was added, changed and removed.
#[derive(Debug)]
pub struct DeltaStream(XdsStream);

impl DeltaStream {
    /// A stream that has just opened: of all types, or of one.
    pub fn new(only: Option<&'static str>) -> Self {
        Self(XdsStream::delta(only))
    }

    /// A request arrived. An error ends the stream.
    pub fn requested(&mut self, request: DeltaDiscoveryRequest) -> Result<Meaning, Status> {
        self.0.requested(request.into()).map(|event| event.meaning)
    }

    /// When [`elapsed`](Self::elapsed) is to be called next: resources with a time to live are renewed by heartbeats.
    pub fn wakeup(&self) -> Option<Instant> {
        self.0.wakeup()
    }

    /// It is now that time.
    pub fn elapsed(&mut self, now: Instant) {
        self.0.elapsed(now);
    }

    /// The next push, if one is due.
    pub fn next(&mut self, catalogue: &Catalogue) -> Option<DeltaDiscoveryResponse> {
        self.next_push(catalogue)?.into_message().ok()
    }

    fn next_push(&mut self, catalogue: &Catalogue) -> Option<Pushed<DeltaDiscoveryResponse>> {
        let Push { url, nonce, content } = self.0.next(catalogue)?;
        let ttl = self.0.supports_ttl();
        let encoding = Encoding::Delta { bare: message::is_bare(&url), ttl };
        let (resources, shared) = content.entries.encode(encoding, |entry| match content.heartbeat {
            true => message::heartbeat(entry),
            false => message::resource(entry, &url, ttl),
        });
        let message = DeltaDiscoveryResponse {
            system_version_info: content.version,
            resources,
            type_url: url.to_string(),
            nonce,
            removed_resources: content.removed.iter().map(|name| name.to_string()).collect(),
            control_plane: Some(message::control_plane()),
        };
        Some(Pushed { message, shared })
    }
}

impl From<DeltaDiscoveryRequest> for Request {
    fn from(request: DeltaDiscoveryRequest) -> Self {
        let names = Names::Change {
            subscribe: request.resource_names_subscribe,
            unsubscribe: request.resource_names_unsubscribe,
            versions: request.initial_resource_versions,
        };
        let (nonce, error) = (request.response_nonce, request.error_detail);
        Self { type_url: request.type_url, node: request.node, nonce, error, names }
    }
}

impl Dialogue for DeltaStream {
    type Request = DeltaDiscoveryRequest;
    type Push = DeltaDiscoveryResponse;

    fn on_request(&mut self, request: DeltaDiscoveryRequest, _: &Catalogue) -> Result<Event, Status> {
        self.0.requested(request.into())
    }

    fn wakeup(&self) -> Option<Instant> {
        self.0.wakeup()
    }

    fn elapsed(&mut self, now: Instant) {
        self.0.elapsed(now);
    }

    fn is_due(&mut self, catalogue: &Catalogue) -> bool {
        self.0.is_due(catalogue)
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<Pushed<DeltaDiscoveryResponse>> {
        self.next_push(catalogue)
    }
}
