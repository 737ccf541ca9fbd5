use std::time::Instant;

use tonic::Status;

use super::{
    message,
    stream::{Names, Request, XdsStream},
    types::Push,
};
use crate::{
    proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    stream::source::{Catalogue, Dialogue, Encoding, Event, Meaning, Pushed},
};

/// One stream of the state of the world: each push of a type holds all that is wanted of it, or all that is new.
#[derive(Debug)]
pub struct SotwStream(XdsStream);

impl SotwStream {
    /// A stream that has just opened: of all types, or of one.
    pub fn new(only: Option<&'static str>) -> Self {
        Self(XdsStream::sotw(only))
    }

    /// A request arrived. An error ends the stream.
    pub fn requested(&mut self, request: DiscoveryRequest) -> Result<Meaning, Status> {
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
    pub fn next(&mut self, catalogue: &Catalogue) -> Option<DiscoveryResponse> {
        self.next_push(catalogue)?.into_message().ok()
    }

    fn next_push(&mut self, catalogue: &Catalogue) -> Option<Pushed<DiscoveryResponse>> {
        let Push { url, nonce, content } = self.0.next(catalogue)?;
        let ttl = self.0.supports_ttl();
        let encoding = Encoding::Sotw { bare: message::is_bare(&url), ttl };
        let (resources, shared) =
            content.entries.encode(encoding, |entry| match entry.ttl().filter(|_| ttl) {
                None => message::any(entry, &url),
                Some(_) => message::wrapped(entry, &url, &content),
            });
        let message = DiscoveryResponse {
            version_info: content.version,
            resources,
            canary: false,
            type_url: url.to_string(),
            nonce,
            control_plane: Some(message::control_plane()),
        };
        Some(Pushed { message, shared })
    }
}

impl From<DiscoveryRequest> for Request {
    fn from(request: DiscoveryRequest) -> Self {
        let names = Names::Replace(request.resource_names);
        let (nonce, error) = (request.response_nonce, request.error_detail);
        Self { type_url: request.type_url, node: request.node, nonce, error, names }
    }
}

impl Dialogue for SotwStream {
    type Request = DiscoveryRequest;
    type Push = DiscoveryResponse;

    fn on_request(&mut self, request: DiscoveryRequest, _: &Catalogue) -> Result<Event, Status> {
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

    fn next(&mut self, catalogue: &Catalogue) -> Option<Pushed<DiscoveryResponse>> {
        self.next_push(catalogue)
    }
}
