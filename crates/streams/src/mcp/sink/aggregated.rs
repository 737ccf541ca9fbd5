//! The predecessor of MCP, `AggregatedMeshConfigService` of Istio 1.0 and 1.1
//! (docs/behaviour/mcp.md#the-aggregated-service).
//!
//! Resources are the same as in MCP. Istio 1.0 names collections by the type URLs of their resources, and 1.1 by their
//! names.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, select_all},
};
use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::{
    mcp::source::{CHANGES, WHOLE},
    proto::istio::mcp::v1alpha1::{
        IncrementalMeshConfigRequest, IncrementalMeshConfigResponse, MeshConfigRequest, MeshConfigResponse,
        RequestResources, Resources,
    },
    stream::{
        peer::Peer,
        redial::DialOptions,
        sink::{
            connect::{Client, connect},
            dialect::{Dialect, Received, Variant},
            driver::{Requests, Sink, Stream},
            exchange::{call, exchange},
            type_urls::{Answer, TypeUrls},
        },
    },
};
use mixer_adapter_config::Collection;

/// Keeps a sink connected to the `AggregatedMeshConfigService` of a peer, until `stop` is cancelled.
///
/// Collections are named by type URLs, until the server refuses them. If it refuses both kinds of names, the sink alternates.
pub async fn dial(sink: Sink, source: Peer, variant: Variant, options: DialOptions, stop: CancellationToken) {
    let has_type_urls = Arc::new(AtomicBool::new(true));
    connect(sink, source, options, stop, move |stream, requests, client| {
        let has_type_urls = has_type_urls.clone();
        async move {
            let named = Aggregated { has_type_urls: has_type_urls.load(Relaxed), ..Aggregated::default() };
            let is_answered = named.is_answered.clone();
            let status = match variant {
                Variant::Sotw => {
                    let path = PathAndQuery::from_static(WHOLE);
                    exchange(stream, requests, named, |requests| call(client, path, requests)).await
                }
                Variant::Delta => exchange_deltas(client, stream, requests, named).await,
            };
            if !is_answered.load(Relaxed) && status.code() == Code::InvalidArgument {
                has_type_urls.fetch_not(Relaxed);
            }
            status
        }
        .boxed()
    })
    .await;
}

/// Whole collections: `StreamAggregatedResources`.
#[derive(Debug, Default)]
pub struct Aggregated {
    types: TypeUrls,
    /// Whether collections are requested by the type URL of their resources, where they have one.
    has_type_urls: bool,
    /// The requested collections by the names in requests.
    requested: BTreeMap<String, String>,
    is_answered: Arc<AtomicBool>,
    /// The version that was accepted last, by collection.
    accepted: BTreeMap<String, String>,
}

impl Dialect for Aggregated {
    type Request = MeshConfigRequest;
    type Response = MeshConfigResponse;

    fn on_request(&mut self, request: RequestResources) -> Vec<MeshConfigRequest> {
        let RequestResources { sink_node, collection, response_nonce, error_detail, .. } = request;
        let type_url = request_name(&collection, self.has_type_urls);
        let question = MeshConfigRequest { sink_node, type_url, ..MeshConfigRequest::default() };
        if response_nonce.is_empty() {
            self.requested.insert(question.type_url.clone(), collection);
            return vec![question];
        }
        let Some(answer) = self.types.answer(&collection, &response_nonce) else { return Vec::new() };
        if error_detail.is_none() {
            self.accepted.insert(answer.type_url.clone(), answer.version);
        }
        let version_info = self.accepted.get(&answer.type_url).cloned().unwrap_or_default();
        vec![MeshConfigRequest { version_info, response_nonce: answer.nonce, error_detail, ..question }]
    }

    fn on_response(&mut self, response: MeshConfigResponse) -> Received<MeshConfigRequest> {
        let MeshConfigResponse { version_info: version, resources, type_url, nonce } = response;
        self.is_answered.store(true, Relaxed);
        let system_version_info = version.clone();
        let collection = self.requested.get(&type_url).unwrap_or(&type_url).clone();
        let nonce =
            self.types.remember(&collection, Answer { type_url, nonce, version, ..Answer::default() });
        let push = Resources { system_version_info, collection, resources, nonce, ..Resources::default() };
        Received::push(push)
    }
}

/// Returns the name of a collection in requests: the type URL of its resources, or its own.
fn request_name(collection: &str, has_type_urls: bool) -> String {
    let message = Collection::new(collection).message().filter(|_| has_type_urls);
    message.map_or_else(|| collection.to_owned(), |message| format!("type.googleapis.com/{message}"))
}

/// Changes of one collection: `IncrementalAggregatedResources`.
///
/// A push does not name its collection, so each collection has a separate stream. The first push is the whole
/// collection, unless the sink sent its versions.
#[derive(Debug)]
pub struct AggregatedDelta {
    collection: String,
    /// The name of the collection in requests.
    type_url: String,
    is_answered: Arc<AtomicBool>,
    types: TypeUrls,
    whole: bool,
}

impl AggregatedDelta {
    /// A stream that has just opened, for that collection, which is requested by its name.
    pub fn new(collection: impl Into<String>) -> Self {
        Self::named(collection.into(), &Aggregated::default())
    }

    /// Creates the state of a collection that is requested as in `names`.
    fn named(collection: String, names: &Aggregated) -> Self {
        let type_url = request_name(&collection, names.has_type_urls);
        let is_answered = names.is_answered.clone();
        Self { collection, type_url, is_answered, types: TypeUrls::default(), whole: true }
    }
}

impl Dialect for AggregatedDelta {
    type Request = IncrementalMeshConfigRequest;
    type Response = IncrementalMeshConfigResponse;

    fn on_request(&mut self, request: RequestResources) -> Vec<IncrementalMeshConfigRequest> {
        let RequestResources { sink_node, initial_resource_versions, response_nonce, error_detail, .. } =
            request;
        let base = IncrementalMeshConfigRequest {
            sink_node,
            type_url: self.type_url.clone(),
            error_detail,
            ..IncrementalMeshConfigRequest::default()
        };
        if response_nonce.is_empty() {
            self.whole &= initial_resource_versions.is_empty();
            return vec![IncrementalMeshConfigRequest { initial_resource_versions, ..base }];
        }
        let answer = self.types.answer(&self.collection, &response_nonce);
        let answer =
            answer.map(|Answer { nonce, .. }| IncrementalMeshConfigRequest { response_nonce: nonce, ..base });
        answer.into_iter().collect()
    }

    fn on_response(
        &mut self,
        response: IncrementalMeshConfigResponse,
    ) -> Received<IncrementalMeshConfigRequest> {
        let IncrementalMeshConfigResponse { system_version_info, resources, removed_resources, nonce } =
            response;
        self.is_answered.store(true, Relaxed);
        let collection = self.collection.clone();
        let nonce = self.types.remember(&collection, Answer { nonce, ..Answer::default() });
        let incremental = !std::mem::take(&mut self.whole);
        let push =
            Resources { system_version_info, collection, resources, removed_resources, nonce, incremental };
        Received::push(push)
    }
}

/// Requests for one collection that wait for its stream.
const UNREAD: usize = 16;

/// Changes, on a stream for each collection. They end together: to the sink they are one.
async fn exchange_deltas(
    client: Client,
    stream: Stream,
    mut requests: Requests,
    named: Aggregated,
) -> Status {
    let mut inboxes: BTreeMap<String, mpsc::Sender<_>> = BTreeMap::new();
    let mut streams: Vec<BoxFuture<'static, Status>> = vec![std::future::pending().boxed()];
    loop {
        let request = tokio::select! {
            (status, ..) = select_all(&mut streams) => return status,
            request = requests.recv() => request,
        };
        let request = match request {
            Some(Ok(request)) => request,
            Some(Err(status)) => return status,
            None => return Status::aborted("the sink is gone"),
        };
        let inbox = inboxes.entry(request.collection.clone()).or_insert_with_key(|collection| {
            let (inbox, own) = mpsc::channel(UNREAD);
            let (client, path) = (client.clone(), PathAndQuery::from_static(CHANGES));
            let dialect = AggregatedDelta::named(collection.clone(), &named);
            streams.push(
                exchange(stream.clone(), own, dialect, |requests| call(client, path, requests)).boxed(),
            );
            inbox
        });
        if inbox.try_send(Ok(request)).is_err() {
            return Status::resource_exhausted("the server does not read what the sink says");
        }
    }
}
