//! Requests without a stream: one answer to one request (docs/behaviour/xds.md#rest).

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use tonic::{
    Request, Response, Status,
    body::Body,
    server::{Grpc, UnaryService},
};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::{message, subscription::Subscription};
use crate::{
    proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    stream::{
        Admission, ContentVersion, ServiceOptions, collection_of, name,
        source::{Catalogue, ConfigServer, Entry},
    },
};

/// What a request asks for, unless it was delivered to the client before.
///
/// The nonce of a response is its version: without a stream, nothing else records what was sent before.
pub fn fetch(catalogue: &Catalogue, request: &DiscoveryRequest) -> Result<Option<DiscoveryResponse>, Status> {
    let url = &request.type_url;
    let collection = collection_of(url);
    let Some(state) = catalogue.snapshot(collection.as_str()) else { return Ok(None) };
    let normal = |resource: &String| name::normal(collection.as_str(), resource).to_owned();
    let names: Vec<String> = request.resource_names.iter().map(normal).collect();
    let mut subscription = Subscription::new(false);
    subscription.replace(&names)?;
    let (entries, version): (Vec<&Arc<Entry>>, ContentVersion) = match subscription.is_wildcard() {
        true => (state.entries().values().collect(), state.version()),
        false => {
            let named = subscription.names().filter_map(|resource| state.entries().get(&**resource));
            let entries: Vec<_> = named.collect();
            let version = ContentVersion::of(entries.iter().map(|entry| entry.resource()));
            (entries, version)
        }
    };
    let version = version.to_string();
    // What was delivered last, even if it was refused. Envoy sends no nonces.
    let last = match request.response_nonce.is_empty() {
        true => &request.version_info,
        false => &request.response_nonce,
    };
    if *last == version {
        return Ok(None);
    }
    Ok(Some(DiscoveryResponse {
        version_info: version.clone(),
        resources: entries.into_iter().map(|entry| message::any(entry, url)).collect(),
        canary: false,
        type_url: url.clone(),
        nonce: version,
        control_plane: Some(message::control_plane()),
    }))
}

/// A `Fetch` method of gRPC, for one type.
#[derive(Clone, Debug)]
pub(super) struct FetchMethod {
    source: ConfigServer,
    admission: Arc<Admission>,
    max_message_size: usize,
    type_url: &'static str,
}

impl FetchMethod {
    pub(super) fn new(
        source: &ConfigServer,
        admission: &Arc<Admission>,
        options: &ServiceOptions,
        type_url: &'static str,
    ) -> Self {
        let (source, admission) = (source.clone(), admission.clone());
        Self { source, admission, max_message_size: options.max_message_size, type_url }
    }

    /// Answers with all that is asked for, whatever the client has.
    async fn answer(self, request: DiscoveryRequest) -> Result<Response<DiscoveryResponse>, Status> {
        let _admitted = self.admission.enter().await?;
        if !request.type_url.is_empty() && request.type_url != self.type_url {
            return Err(Status::invalid_argument(format!(
                "this method serves {} alone, not {}",
                self.type_url, request.type_url
            )));
        }
        let request = DiscoveryRequest {
            type_url: self.type_url.to_owned(),
            version_info: String::new(),
            response_nonce: String::new(),
            ..request
        };
        let response = fetch(&self.source.catalogue(), &request)?;
        response
            .map(Response::new)
            .ok_or_else(|| Status::unavailable("the configuration has not been read yet"))
    }
}

impl UnaryService<DiscoveryRequest> for FetchMethod {
    type Response = DiscoveryResponse;
    type Future = BoxFuture<'static, Result<Response<DiscoveryResponse>, Status>>;

    fn call(&mut self, request: Request<DiscoveryRequest>) -> Self::Future {
        self.clone().answer(request.into_inner()).boxed()
    }
}

impl<B> Service<http::Request<B>> for FetchMethod
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let method = self.clone();
        let codec = ProstCodec::<DiscoveryResponse, DiscoveryRequest>::default();
        async move {
            let longest = method.max_message_size;
            let mut grpc = Grpc::new(codec).max_decoding_message_size(longest);
            Ok(grpc.unary(method, request).await)
        }
        .boxed()
    }
}
