use super::{
    message,
    order::Traits,
    stream::{DiscoveryStream, Names, Request, StreamVariant},
    types::Push,
    watch::Representation,
};
use crate::{
    proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
    stream::source::pushed::{Encoding, Pushed},
};

/// One stream of changes: each push of a type contains added and changed resources, and names of removed ones.
pub type DeltaStream = DiscoveryStream<DeltaDiscoveryRequest, DeltaDiscoveryResponse>;

impl DeltaStream {
    /// Creates a stream that has just opened: of all types, or of one.
    pub fn new(only: Option<&str>) -> Self {
        let representation: fn(Traits) -> Representation = |_| Representation::Changes;
        let variant = StreamVariant { representation, wraps: false, read: request, write: response };
        Self::over(only, variant)
    }
}

fn request(request: DeltaDiscoveryRequest) -> Request {
    let names = Names::Change {
        subscribe: request.resource_names_subscribe,
        unsubscribe: request.resource_names_unsubscribe,
        versions: request.initial_resource_versions,
    };
    let (nonce, error) = (request.response_nonce, request.error_detail);
    Request { type_url: request.type_url, node: request.node, nonce, error, names }
}

fn response(Push { url, nonce, content }: Push, ttl: bool) -> Pushed<DeltaDiscoveryResponse> {
    let encoding = Encoding::Delta { bare: message::is_bare(&url), ttl };
    let (resources, shared) = content.entries.encode(encoding, |entry| {
        if content.heartbeat { message::heartbeat(entry) } else { message::resource(entry, &url, ttl) }
    });
    let message = DeltaDiscoveryResponse {
        system_version_info: content.version,
        resources,
        type_url: url.to_string(),
        nonce,
        removed_resources: content.removed.iter().map(|name| name.to_string()).collect(),
        control_plane: Some(message::control_plane()),
    };
    Pushed { message, shared }
}
