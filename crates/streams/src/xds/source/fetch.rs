//! Requests without a stream: one answer to one request (docs/behaviour/xds.md#rest).

use std::sync::Arc;

use axum::routing::{MethodRouter, any};
use bytes::Bytes;
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, ready},
};
use http_body_util::BodyExt as _;
use mixer_adapter_net::grpc::limit_message;
use serde_json::json;
use tokio::time::timeout;
use tonic::{
    Request, Response, Status,
    body::Body,
    codec::CompressionEncoding,
    server::{Grpc, UnaryService},
};
use tonic_prost::ProstCodec;

use super::{
    BODY_TIMEOUT, message,
    name_set::{Name, name_of},
    node::sink_id,
    subscription::Subscription,
};
use crate::{
    proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    stream::{
        body, name,
        source::{
            catalogue::Catalogue,
            driver::ConfigServer,
            entry::Entry,
            method::Served,
            pushed::{Encoding, Pushed},
            selector::NodeView,
            snapshot::{Snapshot, json_elements, views::View},
        },
        type_url::collection_of,
        version::ContentVersion,
    },
};

/// The number of the field of a response that holds its resources.
const RESOURCES: u32 = 2;

/// Returns the requested resources, unless the client has received them before.
///
/// The nonce of a response is its version: without a stream, nothing else records the last response.
pub fn fetch(catalogue: &Catalogue, request: &DiscoveryRequest) -> Result<Option<DiscoveryResponse>, Status> {
    let Some(fetched) = Query::of(request)?.answer(catalogue) else { return Ok(None) };
    let message = fetched.into_pushed().into_message();
    message.map(Some).map_err(|error| Status::internal(error.to_string()))
}

/// The request of a client without a stream.
pub(super) struct Query {
    url: String,
    collection: String,
    node: NodeView,
    subscription: Subscription,
    /// The version that was delivered last, even if it was refused.
    last: String,
    /// The view of the client at the last answer.
    view: Option<Arc<View>>,
}

/// The answer to a request without a stream.
pub(super) struct Fetched {
    /// The response without its resources.
    response: DiscoveryResponse,
    state: Arc<Snapshot>,
    /// The resources that were requested by name; `None` for all.
    named: Option<Vec<Arc<Entry>>>,
}

impl Query {
    pub(super) fn of(request: &DiscoveryRequest) -> Result<Self, Status> {
        let collection = collection_of(&request.type_url).as_str().to_owned();
        let names: Vec<Name> = request
            .resource_names
            .iter()
            .map(|resource| name_of(&name::normal(&collection, resource), None))
            .collect();
        let mut subscription = Subscription::new(false);
        subscription.replace(&names)?;
        // Envoy sends no nonces.
        let last =
            if request.response_nonce.is_empty() { &request.version_info } else { &request.response_nonce };
        Ok(Self {
            url: request.type_url.clone(),
            collection,
            node: request.node.as_ref().map(NodeView::of).unwrap_or_default(),
            subscription,
            last: last.clone(),
            view: None,
        })
    }

    /// Returns its approximate size in bytes.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>()
            + self.url.len()
            + self.collection.len()
            + self.last.len()
            + self.node.size()
            + self.subscription.names().size()
    }

    /// Returns `None` if the client has the requested resources, or its view has not changed since the last call.
    pub(super) fn answer(&mut self, catalogue: &Catalogue) -> Option<Fetched> {
        let view = catalogue.seen_by(&self.collection, &self.node, self.view.as_ref())?;
        let state = view.state().clone();
        let former = self.view.replace(view);
        if former.is_some_and(|former| Arc::ptr_eq(former.state(), &state)) {
            return None;
        }
        let named =
            (!self.subscription.is_wildcard()).then(|| state.find_each(self.subscription.names().iter()));
        let version = match &named {
            None => state.version(),
            Some(entries) => ContentVersion::of_digests(entries.iter().map(|entry| entry.digest)),
        };
        let version = version.to_string();
        let response = DiscoveryResponse {
            version_info: version.clone(),
            resources: Vec::new(),
            canary: false,
            type_url: self.url.clone(),
            nonce: version.clone(),
            control_plane: Some(message::control_plane()),
        };
        (self.last != version).then_some(Fetched { response, state, named })
    }
}

impl Fetched {
    /// Returns the response. The resources of a whole collection are encoded once for all clients.
    pub(super) fn into_pushed(self) -> Pushed<DiscoveryResponse> {
        let Self { mut response, state, named } = self;
        let url = response.type_url.clone();
        let shared = match named {
            Some(entries) => {
                response.resources = entries.iter().map(|entry| message::any(entry, &url)).collect();
                Bytes::new()
            }
            None => {
                let encoding = Encoding::Sotw { bare: message::is_bare(&url), ttl: false };
                state.encoded(encoding, RESOURCES, |entry| message::any(entry, &url))
            }
        };
        Pushed { message: response, shared }
    }

    /// Returns the response in JSON, in parts. The resources of a whole collection are encoded once for all clients.
    pub(super) fn into_json(self) -> [Bytes; 3] {
        let Self { response, state, named } = self;
        let url = &response.type_url;
        let json = |entry: &Entry| body::to_json(&message::any(entry, url));
        let resources = match named {
            Some(entries) => json_elements(entries.iter().map(|entry| &**entry), json),
            None => state.encoded_json(message::is_bare(url), json),
        };
        let start = format!(
            r#"{{"versionInfo":{},"typeUrl":{},"nonce":{},"resources":["#,
            json!(response.version_info),
            json!(response.type_url),
            json!(response.nonce)
        );
        [start.into(), resources, Bytes::from_static(b"]}\n")]
    }
}

/// Returns a `Fetch` method of gRPC, for one type.
pub(super) fn method(served: &Served, type_url: String) -> MethodRouter {
    let Served { source, admission, max_message_size } = served.clone();
    any(move |request: axum::extract::Request| {
        let fetch = Fetch { source: source.clone(), type_url: type_url.clone() };
        let admitted = admission.request();
        async move {
            let admitted = match admitted {
                Ok(permit) => permit,
                Err(status) => return status.into_http(),
            };
            let mut grpc = Grpc::new(ProstCodec::default())
                .max_decoding_message_size(max_message_size)
                .accept_compressed(CompressionEncoding::Gzip);
            let answered = timeout(BODY_TIMEOUT, grpc.unary(fetch, request)).await;
            let response = answered.unwrap_or_else(|_| {
                let late = format!("the request did not arrive in {BODY_TIMEOUT:?}");
                Status::deadline_exceeded(late).into_http()
            });
            // Admitted until it has been written.
            response.map(move |body| {
                Body::new(body.map_frame(move |frame| {
                    let _written_while_admitted = &admitted;
                    frame
                }))
            })
        }
    })
}

/// A call of a `Fetch` method.
struct Fetch {
    source: ConfigServer,
    type_url: String,
}

impl Fetch {
    /// Answers with all requested resources, whatever the client has.
    fn answer(&self, request: DiscoveryRequest) -> Result<Response<DiscoveryResponse>, Status> {
        if !request.type_url.is_empty() && request.type_url != self.type_url {
            return Err(Status::invalid_argument(format!(
                "this method serves {} alone, not {}",
                self.type_url, request.type_url
            )));
        }
        let request = DiscoveryRequest {
            type_url: self.type_url.clone(),
            version_info: String::new(),
            response_nonce: String::new(),
            ..request
        };
        let client = request.node.as_ref().map(sink_id).unwrap_or_default().id;
        self.source.check_version(&request.type_url, &client)?;
        let response = fetch(&self.source.catalogue(), &request)?;
        response
            .map(Response::new)
            .ok_or_else(|| Status::unavailable("the configuration has not been read yet"))
    }
}

impl UnaryService<DiscoveryRequest> for Fetch {
    type Response = DiscoveryResponse;
    type Future = BoxFuture<'static, Result<Response<DiscoveryResponse>, Status>>;

    fn call(&mut self, request: Request<DiscoveryRequest>) -> Self::Future {
        ready(self.answer(request.into_inner()).map_err(limit_message)).boxed()
    }
}
