use super::{
    message,
    order::Traits,
    stream::{DiscoveryStream, Names, Request, StreamVariant},
    types::Push,
    watch::Representation,
};
use crate::{
    proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    stream::source::pushed::{Encoding, Pushed},
};

/// One stream of the state of the world: each push of a type contains all subscribed resources, or all new ones.
pub type SotwStream = DiscoveryStream<DiscoveryRequest, DiscoveryResponse>;

impl SotwStream {
    /// Creates a stream that has just opened: of all types, or of one.
    pub fn new(only: Option<&str>) -> Self {
        let representation: fn(Traits) -> Representation =
            |traits| if traits.whole { Representation::Whole } else { Representation::Parts };
        let variant = StreamVariant { representation, wraps: true, read: request, write: response };
        Self::over(only, variant)
    }
}

fn request(request: DiscoveryRequest) -> Request {
    let names = Names::Replace(request.resource_names);
    let (nonce, error) = (request.response_nonce, request.error_detail);
    Request { type_url: request.type_url, node: request.node, nonce, error, names }
}

fn response(Push { url, nonce, content }: Push, ttl: bool) -> Pushed<DiscoveryResponse> {
    let encoding = Encoding::Sotw { bare: message::is_bare(&url), ttl };
    // Clients that support times to live read the envelope.
    let is_unnamed = message::is_unnamed(&url);
    let (resources, shared) = content.entries.encode(encoding, |entry| {
        if ttl && (is_unnamed || entry.ttl.is_some()) {
            message::wrapped(entry, &url, &content)
        } else {
            message::any(entry, &url)
        }
    });
    let message = DiscoveryResponse {
        version_info: content.version,
        resources,
        canary: false,
        type_url: url.to_string(),
        nonce,
        control_plane: Some(message::control_plane()),
    };
    Pushed { message, shared }
}
