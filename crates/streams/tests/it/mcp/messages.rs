//! Messages, written shortly.

use mixer_adapter_core::proto::{Any, Status};
use mixer_adapter_streams::proto::istio::mcp::v1alpha1::{Metadata, RequestResources, Resource, Resources};

pub(crate) const RULES: &str = "istio/policy/v1beta1/rules";
pub(crate) const HANDLERS: &str = "istio/policy/v1beta1/handlers";
pub(crate) const INSTANCES: &str = "istio/policy/v1beta1/instances";

/// `name@version`, with a body that says the same.
pub(crate) fn resource(text: &str) -> Resource {
    let (name, version) = text.split_once('@').unwrap();
    Resource {
        metadata: Some(Metadata {
            name: name.to_owned(),
            version: version.to_owned(),
            ..Metadata::default()
        }),
        body: Some(Any {
            type_url: "type.googleapis.com/istio.policy.v1beta1.Rule".to_owned(),
            value: text.to_owned().into(),
        }),
    }
}

pub(crate) fn push(collection: &str, nonce: &str, resources: &[&str]) -> Resources {
    Resources {
        system_version_info: format!("version of {nonce}"),
        collection: collection.to_owned(),
        nonce: nonce.to_owned(),
        resources: resources.iter().map(|text| resource(text)).collect(),
        ..Resources::default()
    }
}

pub(crate) fn increment(collection: &str, nonce: &str, resources: &[&str], removed: &[&str]) -> Resources {
    Resources {
        incremental: true,
        removed_resources: removed.iter().map(|name| (*name).to_owned()).collect(),
        ..push(collection, nonce, resources)
    }
}

/// `name@version` of each resource, as ordered.
pub(crate) fn names(push: &Resources) -> Vec<String> {
    let metadata = push.resources.iter().map(|resource| resource.metadata.clone().unwrap());
    metadata.map(|metadata| format!("{}@{}", metadata.name, metadata.version)).collect()
}

pub(crate) fn request(collection: &str) -> RequestResources {
    RequestResources { collection: collection.to_owned(), ..RequestResources::default() }
}

pub(crate) fn ack(collection: &str, nonce: &str) -> RequestResources {
    RequestResources { response_nonce: nonce.to_owned(), ..request(collection) }
}

pub(crate) fn nack(collection: &str, nonce: &str, code: i32, message: &str) -> RequestResources {
    let error = Status { code, message: message.to_owned(), details: Vec::new() };
    RequestResources { error_detail: Some(error), ..ack(collection, nonce) }
}
