//! Messages, written shortly. Resources are `name@version`, with a body that says the same.

use mixer_adapter_core::proto::Any;
use mixer_adapter_streams::proto::{
    envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
    },
    istio::mcp::v1alpha1::{Metadata, Resource as Wrapped},
};
use prost::Message;

pub(crate) const RULES: &str = "istio/policy/v1beta1/rules";
pub(crate) const RULE: &str = "config.istio.io/v1alpha2/rule";
pub(crate) const HANDLERS: &str = "istio/policy/v1beta1/handlers";
pub(crate) const HANDLER: &str = "config.istio.io/v1alpha2/handler";

pub(crate) fn any(message: &str, value: impl Into<bytes::Bytes>) -> Any {
    Any { type_url: format!("type.googleapis.com/{message}"), value: value.into() }
}

pub(crate) fn metadata(text: &str) -> Metadata {
    let (name, version) = text.split_once('@').unwrap();
    Metadata { name: name.to_owned(), version: version.to_owned(), ..Metadata::default() }
}

/// As istiod wraps resources.
pub(crate) fn wrapped(text: &str) -> Any {
    let body = any("istio.policy.v1beta1.Rule", text.to_owned());
    let wrapped = Wrapped { metadata: Some(metadata(text)), body: Some(body) };
    any("istio.mcp.v1alpha1.Resource", wrapped.encode_to_vec())
}

pub(crate) fn whole(type_url: &str, nonce: &str, resources: &[&str]) -> DiscoveryResponse {
    DiscoveryResponse {
        version_info: format!("version of {nonce}"),
        resources: resources.iter().map(|text| wrapped(text)).collect(),
        type_url: type_url.to_owned(),
        nonce: nonce.to_owned(),
        ..DiscoveryResponse::default()
    }
}

/// A resource with name and version around it.
pub(crate) fn named(text: &str) -> Resource {
    let Metadata { name, version, .. } = metadata(text);
    Resource { name, version, resource: Some(wrapped(text)), ..Resource::default() }
}

pub(crate) fn changes(
    type_url: &str,
    nonce: &str,
    resources: &[&str],
    removed: &[&str],
) -> DeltaDiscoveryResponse {
    DeltaDiscoveryResponse {
        system_version_info: format!("version of {nonce}"),
        resources: resources.iter().map(|text| named(text)).collect(),
        type_url: type_url.to_owned(),
        nonce: nonce.to_owned(),
        removed_resources: removed.iter().map(|name| (*name).to_owned()).collect(),
        ..DeltaDiscoveryResponse::default()
    }
}

/// A request in short: what it is, of which type, and what it names.
pub(crate) trait Shape {
    fn shape(&self) -> String;
}

impl Shape for DiscoveryRequest {
    fn shape(&self) -> String {
        assert!(self.node.is_some() && self.resource_names.is_empty(), "{self:?}");
        let Self { version_info, type_url, response_nonce, .. } = self;
        match &self.error_detail {
            None if response_nonce.is_empty() => format!("ask {type_url} {version_info:?}"),
            None => format!("ack {type_url} {response_nonce} {version_info:?}"),
            Some(error) => format!("nack {type_url} {response_nonce} {version_info:?}: {}", error.message),
        }
    }
}

impl Shape for DeltaDiscoveryRequest {
    fn shape(&self) -> String {
        assert!(self.node.is_some() && self.resource_names_unsubscribe.is_empty(), "{self:?}");
        let Self { type_url, response_nonce, resource_names_subscribe, initial_resource_versions, .. } = self;
        match &self.error_detail {
            None if response_nonce.is_empty() => {
                format!("ask {type_url} {resource_names_subscribe:?} {initial_resource_versions:?}")
            }
            None => format!("ack {type_url} {response_nonce}"),
            Some(error) => format!("nack {type_url} {response_nonce}: {}", error.message),
        }
    }
}
