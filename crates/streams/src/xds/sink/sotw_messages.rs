use std::collections::{BTreeMap, BTreeSet};

use super::{
    node::XdsClient,
    unwrap::{self, Unwrapped},
};
use crate::{
    proto::{
        envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
        istio::mcp::v1alpha1::{RequestResources, Resources},
    },
    stream::sink::{
        dialect::{Dialect, Received},
        type_urls::{Answer, Arrived, TypeUrls},
    },
    xds::source::order::traits,
};
use mixer_adapter_core::proto::Status;

/// Whole sets: `StreamAggregatedResources` (docs/behaviour/xds.md#whole-sets).
///
/// A response of some of Envoy's types contains new resources only; the first of a stream contains all of them, too.
///
/// Initial requests have no version: a restarted server may use the sink's version for another state, and would not
/// send it.
#[derive(Debug, Default)]
pub struct Sotw {
    client: XdsClient,
    types: TypeUrls,
    /// The version that was accepted last, by type URL.
    accepted: BTreeMap<String, String>,
    /// The type URLs with a push.
    pushed: BTreeSet<String>,
}

impl Sotw {
    /// Creates a stream of that client that has just opened.
    pub fn new(client: impl Into<XdsClient>) -> Self {
        Self { client: client.into(), ..Self::default() }
    }

    fn subscription(&self, type_url: String) -> DiscoveryRequest {
        DiscoveryRequest {
            node: Some(self.client.node.clone()),
            resource_names: self.client.names(&type_url),
            type_url,
            ..DiscoveryRequest::default()
        }
    }

    fn answer(
        &mut self,
        Answer { type_url, nonce, version, .. }: Answer,
        error: Option<Status>,
    ) -> DiscoveryRequest {
        if error.is_none() {
            self.accepted.insert(type_url.clone(), version);
        }
        DiscoveryRequest {
            version_info: self.accepted.get(&type_url).cloned().unwrap_or_default(),
            response_nonce: nonce,
            error_detail: error,
            ..self.subscription(type_url)
        }
    }
}

impl Dialect for Sotw {
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;

    fn on_request(&mut self, request: RequestResources) -> Vec<DiscoveryRequest> {
        if request.response_nonce.is_empty() {
            let urls = self.types.request(&request.collection);
            return urls.into_iter().map(|url| self.subscription(url)).collect();
        }
        let answer = self.types.answer(&request.collection, &request.response_nonce);
        answer.map(|answer| self.answer(answer, request.error_detail)).into_iter().collect()
    }

    fn on_response(&mut self, response: DiscoveryResponse) -> Received<DiscoveryRequest> {
        let DiscoveryResponse { version_info: version, resources, type_url, nonce, .. } = response;
        let arrived = self.types.arrived(&type_url, resources.is_empty());
        let incremental = !self.pushed.insert(type_url.clone()) && !traits(&type_url).whole;
        let answer = Answer { type_url, nonce, version, ..Answer::default() };
        match arrived {
            Arrived::Of(collection) => {
                let all = resources.len();
                let Unwrapped { resources, lifetimes, .. } =
                    unwrap::all(&collection, resources.into_iter().map(unwrap::envelope));
                let lifetimes = (!lifetimes.is_empty()).then(|| (collection.clone(), lifetimes));
                // Renewed resources are not deleted.
                let incremental = incremental || resources.len() < all;
                if resources.is_empty() && all > 0 {
                    return Received { lifetimes, ..Received::replies(vec![self.answer(answer, None)]) };
                }
                let system_version_info = answer.version.clone();
                let nonce = self.types.remember(&collection, answer);
                let push = Resources {
                    system_version_info,
                    collection,
                    resources,
                    nonce,
                    incremental,
                    ..Resources::default()
                };
                Received { lifetimes, ..Received::push(push) }
            }
            Arrived::Nothing => Received::replies(vec![self.answer(answer, None)]),
            Arrived::Empty { next } => {
                Received::replies(vec![self.answer(answer, None), self.subscription(next)])
            }
        }
    }
}
