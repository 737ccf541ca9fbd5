//! Messages in the shorthand of Envoy's protocol document: `DiscoveryRequest (V=,R=foo,bar,N=,T=EDS)`.

use std::{fmt, sync::Arc};

use tonic::Status;

use super::{body, type_url::collection_of};
use crate::proto::{
    envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    },
    istio::mcp::v1alpha1::{
        IncrementalMeshConfigRequest, IncrementalMeshConfigResponse, MeshConfigRequest, MeshConfigResponse,
        RequestResources, Resource, Resources,
    },
};
use mixer_adapter_config::{
    MAX_NAME,
    envoy::{ENVOY_TYPES, successor},
    truncate,
};
use mixer_adapter_core::proto;

/// The maximum number of names in the shorthand.
const MAX_NAMES: usize = 20;

/// A summary of a message of MCP or xDS, without the content of resources.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Shorthand {
    /// The message, `DiscoveryRequest`.
    pub message: &'static str,
    /// `version_info`, or `system_version_info`.
    pub version: String,
    /// The subscribed names, or the names of the resources (empty for an unnamed resource).
    pub names: Vec<String>,
    /// The names no longer subscribed to, or removed.
    pub removed: Vec<String>,
    /// `response_nonce`, or `nonce`.
    pub nonce: String,
    /// The type URL, or the collection.
    pub type_url: String,
    /// `error_detail`.
    pub error: Option<proto::Status>,
    /// The id of the node or of the sink, if the message has one.
    pub node: Option<String>,
    /// Whether a request has versions of resources.
    pub resumes: bool,
    /// Whether an MCP request accepts, or an MCP response is, a change of the state instead of the whole state.
    pub incremental: bool,
}

/// Messages that have a [`Shorthand`].
pub trait Summarize {
    /// Returns the summary of the message.
    fn shorthand(&self) -> Shorthand;
}

/// Returns the start of a text in one printable line.
fn short(text: &str) -> String {
    truncate(text, MAX_NAME).escape_debug().to_string()
}

impl fmt::Display for Shorthand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let removed = self.removed.iter().map(|name| format!("-{}", short(name)));
        let mut names: Vec<String> = self.names.iter().map(|name| short(name)).chain(removed).collect();
        let more = names.len().saturating_sub(MAX_NAMES);
        names.truncate(MAX_NAMES);
        if more > 0 {
            names.push(format!("and {more} more"));
        }
        let collection = collection_of(&self.type_url);
        let message = successor(collection.as_str()).unwrap_or(collection.as_str());
        let service =
            ENVOY_TYPES.iter().find(|known| known.message == message).map(|known| known.service.to_owned());
        let of = service.unwrap_or_else(|| short(&self.type_url));
        let (version, nonce) = (short(&self.version), short(&self.nonce));
        let incremental = if self.incremental { ",incremental" } else { "" };
        write!(f, "{} (V={version},R={},N={nonce},T={of}{incremental})", self.message, names.join(","))?;
        match &self.error {
            Some(error) => write!(f, " NACK {}: {}", error.code, short(&error.message)),
            None => Ok(()),
        }
    }
}

/// Implements [`Summarize`] for messages by their fields of the summary. The names in parentheses are those of a request's type
/// and node; its other fields are the same in all requests.
macro_rules! summarize {
    ($($message:ident $(($type_url:ident, $node:ident))? as $this:ident { $($field:ident: $value:expr,)* })*) => {$(
        impl Summarize for $message {
            fn shorthand(&self) -> Shorthand {
                let $this = self;
                Shorthand {
                    message: stringify!($message),
                    $(
                        nonce: self.response_nonce.clone(),
                        type_url: self.$type_url.clone(),
                        error: self.error_detail.clone(),
                        node: self.$node.as_ref().map(|node| node.id.clone()),
                    )?
                    $($field: $value,)*
                    ..Shorthand::default()
                }
            }
        }
    )*};
}

summarize! {
    DiscoveryRequest(type_url, node) as request {
        version: request.version_info.clone(),
        names: request.resource_names.clone(),
    }
    DiscoveryResponse as response {
        version: response.version_info.clone(),
        names: response.resources.iter().map(any_name).collect(),
        nonce: response.nonce.clone(),
        type_url: response.type_url.clone(),
    }
    DeltaDiscoveryRequest(type_url, node) as request {
        names: request.resource_names_subscribe.clone(),
        removed: request.resource_names_unsubscribe.clone(),
        resumes: !request.initial_resource_versions.is_empty(),
    }
    DeltaDiscoveryResponse as response {
        version: response.system_version_info.clone(),
        names: response.resources.iter().map(|resource| resource.name.clone()).collect(),
        removed: response.removed_resources.clone(),
        nonce: response.nonce.clone(),
        type_url: response.type_url.clone(),
    }
    RequestResources(collection, sink_node) as request {
        incremental: request.incremental,
        resumes: !request.initial_resource_versions.is_empty(),
    }
    Resources as response {
        incremental: response.incremental,
        version: response.system_version_info.clone(),
        names: response.resources.iter().map(resource_name).collect(),
        removed: response.removed_resources.clone(),
        nonce: response.nonce.clone(),
        type_url: response.collection.clone(),
    }
    MeshConfigRequest(type_url, sink_node) as request {
        version: request.version_info.clone(),
    }
    MeshConfigResponse as response {
        version: response.version_info.clone(),
        names: response.resources.iter().map(resource_name).collect(),
        nonce: response.nonce.clone(),
        type_url: response.type_url.clone(),
    }
    IncrementalMeshConfigRequest(type_url, sink_node) as request {
        resumes: !request.initial_resource_versions.is_empty(),
    }
    IncrementalMeshConfigResponse as response {
        version: response.system_version_info.clone(),
        names: response.resources.iter().map(resource_name).collect(),
        removed: response.removed_resources.clone(),
        nonce: response.nonce.clone(),
    }
}

/// Returns the name of a resource of xDS, also in its wrapper of MCP.
fn any_name(any: &proto::Any) -> String {
    if any.message_name() != "istio.mcp.v1alpha1.Resource" {
        return body::named(any).unwrap_or_default();
    }
    let wrapped: Result<Resource, _> = prost::Message::decode(any.value.clone());
    wrapped.map(|resource| resource_name(&resource)).unwrap_or_default()
}

fn resource_name(resource: &Resource) -> String {
    resource.metadata.as_ref().map(|metadata| metadata.name.clone()).unwrap_or_default()
}

/// An event on the streams of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Traced {
    /// A request was sent. With a nonce and without an error it is an ACK.
    Sent(Shorthand),
    /// A response arrived.
    Received(Shorthand),
    /// A stream ended, for this reason.
    Ended(Status),
}

/// An optional observer of the events on the streams of a client.
#[derive(Clone, Default)]
pub struct Trace(Option<Arc<dyn Fn(Traced) + Send + Sync>>);

impl Trace {
    /// Calls `show` for each message.
    pub fn new(show: impl Fn(Traced) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(show)))
    }

    pub(crate) fn sent(&self, message: &impl Summarize) {
        if let Some(show) = &self.0 {
            show(Traced::Sent(message.shorthand()));
        }
    }

    pub(crate) fn received(&self, message: &impl Summarize) {
        if let Some(show) = &self.0 {
            show(Traced::Received(message.shorthand()));
        }
    }

    pub(crate) fn ended(&self, status: &Status) {
        if let Some(show) = &self.0 {
            show(Traced::Ended(status.clone()));
        }
    }
}

mixer_adapter_core::framework::debug_fields!(Trace {});

#[cfg(test)]
mod tests {
    use super::*;

    /// The first request and response of the document.
    #[test]
    fn messages_are_written_as_in_the_document() {
        let request = DiscoveryRequest {
            resource_names: vec!["foo".to_owned(), "bar".to_owned()],
            type_url: "type.googleapis.com/envoy.api.v2.ClusterLoadAssignment".to_owned(),
            ..DiscoveryRequest::default()
        };
        assert_eq!(request.shorthand().to_string(), "DiscoveryRequest (V=,R=foo,bar,N=,T=EDS)");
        let error = proto::Status { code: 3, message: "no\nway".to_owned(), details: Vec::new() };
        let request = DiscoveryRequest {
            version_info: "X".to_owned(),
            response_nonce: "A".to_owned(),
            error_detail: Some(error),
            ..request
        };
        assert_eq!(
            request.shorthand().to_string(),
            "DiscoveryRequest (V=X,R=foo,bar,N=A,T=EDS) NACK 3: no\\nway"
        );
        let response = DeltaDiscoveryResponse {
            removed_resources: vec!["b".to_owned()],
            nonce: "B".to_owned(),
            type_url: "networking.istio.io/v1/Gateway".to_owned(),
            ..DeltaDiscoveryResponse::default()
        };
        let text = "DeltaDiscoveryResponse (V=,R=-b,N=B,T=networking.istio.io/v1/Gateway)";
        assert_eq!(response.shorthand().to_string(), text);
    }

    #[test]
    fn many_names_are_counted() {
        let names = (0..100).map(|number| number.to_string()).collect();
        let request = DiscoveryRequest { resource_names: names, ..DiscoveryRequest::default() };
        let text = request.shorthand().to_string();
        assert!(text.contains("18,19,and 80 more,N="), "{text}");
    }
}
