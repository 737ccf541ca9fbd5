//! Messages, written shortly.

use std::sync::Arc;

use mixer_adapter_core::proto::{Any, Status};
use mixer_adapter_streams::{
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{
                DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            },
        },
        istio::mcp::v1alpha1 as mcp,
    },
    stream::{RawChange, RawResource, collection_of},
};
use prost::Message as _;

pub(crate) const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
pub(crate) const ENDPOINT: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
pub(crate) const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
pub(crate) const ROUTE: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
/// A type of resources that go out wrapped.
pub(crate) const ENTRY: &str = "networking.istio.io/v1/ServiceEntry";

pub(crate) fn list(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// `name@content`, the content as the body of the message of a type.
pub(crate) fn resource(type_url: &str, text: &str) -> Arc<RawResource> {
    let (name, _) = text.split_once('@').unwrap();
    let message = match type_url.split('/').count() {
        2 => type_url,
        _ => "type.googleapis.com/google.protobuf.Struct",
    };
    let body = Any { type_url: message.to_owned(), value: text.to_owned().into() };
    Arc::new(RawResource { name: name.to_owned(), body, ..RawResource::default() })
}

/// All resources of a type.
pub(crate) fn all(type_url: &str, texts: &str) -> RawChange {
    RawChange {
        collection: collection_of(type_url).as_str().into(),
        version: String::new(),
        full: true,
        resources: texts.split_whitespace().map(|text| resource(type_url, text)).collect(),
        removed: Vec::new(),
    }
}

/// What a resource says: the text it was made of, bare or wrapped.
pub(crate) fn text(any: &Any) -> String {
    if any.type_url.ends_with("istio.mcp.v1alpha1.Resource") {
        let wrapped = mcp::Resource::decode(&*any.value).unwrap();
        assert!(!wrapped.metadata.unwrap().version.is_empty());
        return text(&wrapped.body.unwrap());
    }
    String::from_utf8(any.value.to_vec()).unwrap()
}

/// The resources of a push as it has them.
pub(crate) fn texts(push: &DiscoveryResponse) -> String {
    push.resources.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// The resources of a push, and after a `-` what is gone.
pub(crate) fn changes(push: &DeltaDiscoveryResponse) -> String {
    let changed = push.resources.iter().map(|resource| text(resource.resource.as_ref().unwrap()));
    let removed = push.removed_resources.iter().map(|name| format!("-{name}"));
    changed.chain(removed).collect::<Vec<_>>().join(" ")
}

pub(crate) fn ask(type_url: &str, names: &str) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: type_url.to_owned(),
        resource_names: list(names),
        ..DiscoveryRequest::default()
    }
}

pub(crate) fn ack(push: &DiscoveryResponse, names: &str) -> DiscoveryRequest {
    DiscoveryRequest {
        version_info: push.version_info.clone(),
        response_nonce: push.nonce.clone(),
        ..ask(&push.type_url, names)
    }
}

/// Refuses a push for a version that was accepted before.
pub(crate) fn nack(push: &DiscoveryResponse, version: &str, names: &str) -> DiscoveryRequest {
    DiscoveryRequest { version_info: version.to_owned(), error_detail: Some(error("no")), ..ack(push, names) }
}

pub(crate) fn subscribe(type_url: &str, more: &str, less: &str) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: type_url.to_owned(),
        resource_names_subscribe: list(more),
        resource_names_unsubscribe: list(less),
        ..DeltaDiscoveryRequest::default()
    }
}

pub(crate) fn accepted(push: &DeltaDiscoveryResponse) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { response_nonce: push.nonce.clone(), ..subscribe(&push.type_url, "", "") }
}

pub(crate) fn refused(push: &DeltaDiscoveryResponse) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { error_detail: Some(error("no")), ..accepted(push) }
}

pub(crate) fn error(message: &str) -> Status {
    Status { code: 13, message: message.to_owned(), details: Vec::new() }
}

pub(crate) fn node(id: &str) -> Option<Node> {
    Some(Node { id: id.to_owned(), cluster: "edge".to_owned(), ..Node::default() })
}
