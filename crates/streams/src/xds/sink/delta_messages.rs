use std::collections::{BTreeMap, BTreeSet};

use super::{
    node::XdsClient,
    unwrap::{self, Unwrapped},
    versions::Versions,
};
use crate::{
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
        istio::mcp::v1alpha1::{RequestResources, Resources},
    },
    stream::{
        sink::{
            dialect::{Dialect, Received},
            type_urls::{Answer, Arrived, PushedVersions, TypeUrls},
        },
        type_url::collection_of,
    },
};
use mixer_adapter_core::proto::Status;

/// All resources of a type, to a server that knows of names.
const WILDCARD: &str = "*";

/// Changes: `DeltaAggregatedResources` (docs/behaviour/xds.md#changes).
///
/// The first response for a collection is the whole set, unless the sink sent its versions. A response with an unnamed
/// resource (as from Nacos) is the whole set, too: without a name it could never be removed.
#[derive(Debug, Default)]
pub struct Delta {
    client: XdsClient,
    types: TypeUrls,
    /// Type URLs.
    requested: BTreeSet<String>,
    /// The collections whose whole set was pushed, or whose versions the sink sent.
    based: BTreeSet<String>,
    versions: Versions,
}

impl Delta {
    /// Creates a stream of that client that has just opened, with the versions of the previous stream.
    pub fn new(client: impl Into<XdsClient>, versions: Versions) -> Self {
        Self { client: client.into(), versions, ..Self::default() }
    }

    /// Subscribes to the resources of a type. Sends versions only if the collection has no other type URL.
    fn subscription(
        &mut self,
        type_url: String,
        versions: BTreeMap<String, String>,
    ) -> DeltaDiscoveryRequest {
        let mut request = DeltaDiscoveryRequest {
            node: Some(self.client.node.clone()),
            resource_names_subscribe: self.client.names(&type_url),
            ..DeltaDiscoveryRequest::default()
        };
        if !self.requested.insert(type_url.clone()) {
            if request.resource_names_subscribe.is_empty() {
                request.resource_names_subscribe.push(WILDCARD.to_owned());
            }
            return DeltaDiscoveryRequest { type_url, ..request };
        }
        let initial_resource_versions =
            if self.types.is_only(&type_url) { versions } else { BTreeMap::new() };
        if !initial_resource_versions.is_empty() {
            self.based.insert(collection_of(&type_url).as_str().to_owned());
        }
        DeltaDiscoveryRequest { type_url, initial_resource_versions, ..request }
    }

    fn answer(&self, answer: Answer, error_detail: Option<Status>) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node: Some(self.client.node.clone()),
            type_url: answer.type_url,
            response_nonce: answer.nonce,
            error_detail,
            ..DeltaDiscoveryRequest::default()
        }
    }
}

impl Dialect for Delta {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;

    fn on_request(&mut self, request: RequestResources) -> Vec<DeltaDiscoveryRequest> {
        if request.response_nonce.is_empty() {
            let urls = self.types.request(&request.collection);
            let versions = self.versions.to_send(&request.collection, request.initial_resource_versions);
            return urls.into_iter().map(|url| self.subscription(url, versions.clone())).collect();
        }
        let answer = self.types.answer(&request.collection, &request.response_nonce);
        let Some(mut answer) = answer else { return Vec::new() };
        if request.error_detail.is_none() {
            self.versions.accepted(request.collection, std::mem::take(&mut answer.versions));
        }
        vec![self.answer(answer, request.error_detail)]
    }

    fn on_response(&mut self, response: DeltaDiscoveryResponse) -> Received<DeltaDiscoveryRequest> {
        let DeltaDiscoveryResponse {
            system_version_info, resources, type_url, nonce, removed_resources, ..
        } = response;
        let arrived = self.types.arrived(&type_url, resources.is_empty());
        let answer = Answer { type_url, nonce, ..Answer::default() };
        match arrived {
            Arrived::Of(collection) => {
                let first = self.based.insert(collection.clone());
                let incremental = !first && resources.iter().all(unwrap::is_named);
                let is_empty = resources.is_empty() && removed_resources.is_empty();
                let Unwrapped { resources, lifetimes, versions: changed } =
                    unwrap::all(&collection, resources);
                let are_heartbeats =
                    !first && !is_empty && resources.is_empty() && removed_resources.is_empty();
                let lifetimes = (!lifetimes.is_empty()).then(|| (collection.clone(), lifetimes));
                // There is nothing to decide, and the next heartbeat may wait for the answer.
                if are_heartbeats {
                    return Received { lifetimes, ..Received::replies(vec![self.answer(answer, None)]) };
                }
                let versions = PushedVersions { whole: !incremental, changed };
                let nonce = self.types.remember(&collection, Answer { versions, ..answer });
                let push = Resources {
                    system_version_info,
                    collection,
                    resources,
                    removed_resources,
                    nonce,
                    incremental,
                };
                Received { lifetimes, ..Received::push(push) }
            }
            Arrived::Nothing => Received::replies(vec![self.answer(answer, None)]),
            Arrived::Empty { next } => {
                let replies = vec![self.answer(answer, None), self.subscription(next, BTreeMap::new())];
                Received::replies(replies)
            }
        }
    }
}
