use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use prost::Message;
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codegen::BoxStream,
    server::{Grpc, StreamingService},
    service::Routes,
};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::{DeltaStream, SotwStream, aggregated};
use crate::config::mcp::{
    Admission, Rate, ServiceOptions,
    source::{Dialogue, Source, open},
};

/// The methods, without `Stream` or `Delta` and what follows it, and what that is; and the type where it is one (spec: envoy.md 3).
const METHODS: [(&str, &str, Option<&str>); 10] = [
    ("discovery.v3.AggregatedDiscoveryService", "AggregatedResources", None),
    (
        "listener.v3.ListenerDiscoveryService",
        "Listeners",
        Some("type.googleapis.com/envoy.config.listener.v3.Listener"),
    ),
    (
        "route.v3.RouteDiscoveryService",
        "Routes",
        Some("type.googleapis.com/envoy.config.route.v3.RouteConfiguration"),
    ),
    (
        "route.v3.ScopedRoutesDiscoveryService",
        "ScopedRoutes",
        Some("type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"),
    ),
    (
        "route.v3.VirtualHostDiscoveryService",
        "VirtualHosts",
        Some("type.googleapis.com/envoy.config.route.v3.VirtualHost"),
    ),
    (
        "cluster.v3.ClusterDiscoveryService",
        "Clusters",
        Some("type.googleapis.com/envoy.config.cluster.v3.Cluster"),
    ),
    (
        "endpoint.v3.EndpointDiscoveryService",
        "Endpoints",
        Some("type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"),
    ),
    (
        "secret.v3.SecretDiscoveryService",
        "Secrets",
        Some("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"),
    ),
    (
        "runtime.v3.RuntimeDiscoveryService",
        "Runtime",
        Some("type.googleapis.com/envoy.service.runtime.v3.Runtime"),
    ),
    (
        "extension.v3.ExtensionConfigDiscoveryService",
        "ExtensionConfigs",
        Some("type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"),
    ),
];
/// The type that is served as changes only.
const CHANGES_ONLY: &str = "VirtualHosts";

/// How often a client may ask on one stream. It answers each push of each type.
const REQUESTS: Rate = Rate { burst: 1000, every: Duration::from_millis(10) };

/// What servers of xDS should use: when they come back, clients say at length what they have.
pub fn default_options() -> ServiceOptions {
    ServiceOptions {
        max_streams: 10_000,
        new_streams: Rate { burst: 100, every: Duration::from_millis(10) },
        max_message_size: 16 << 20,
    }
}

/// The services of xDS beside others: ADS, those of one type each, and `AggregatedMeshConfigService`, all of which serve what the
/// source does.
pub fn mount(services: Routes, source: &Source, options: &ServiceOptions) -> Routes {
    let admission = Arc::new(Admission::new(options));
    let mut services = services.add_service(aggregated::service(source.clone(), admission.clone(), options));
    for (service, resources, only) in METHODS {
        let shared = (source.clone(), admission.clone(), options.max_message_size);
        let (source, admission, max_message_size) = shared;
        let stream = Method { source, admission, max_message_size, stream: move || SotwStream::new(only) };
        let delta = stream.clone().streaming(move || DeltaStream::new(only));
        let router = services.axum_router_mut();
        let path = |form: &str| format!("/envoy.service.{service}/{form}{resources}");
        let mut grown = std::mem::take(router).route_service(&path("Delta"), delta);
        if resources != CHANGES_ONLY {
            grown = grown.route_service(&path("Stream"), stream);
        }
        *router = grown;
    }
    services
}

/// A method that serves streams of a form.
#[derive(Clone, Debug)]
struct Method<F> {
    source: Source,
    admission: Arc<Admission>,
    max_message_size: usize,
    stream: F,
}

impl<F> Method<F> {
    /// The same with streams of another form.
    fn streaming<G>(self, stream: G) -> Method<G> {
        let Self { source, admission, max_message_size, .. } = self;
        Method { source, admission, max_message_size, stream }
    }
}

impl<F, D> Service<http::Request<axum::body::Body>> for Method<F>
where
    F: Fn() -> D + Clone + Send + 'static,
    D: Dialogue + 'static,
    D::Request: Message + Default + 'static,
    D::Push: Message + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<axum::body::Body>) -> Self::Future {
        let method = self.clone();
        async move {
            let size = Some(method.max_message_size);
            let codec = ProstCodec::<D::Push, D::Request>::default();
            let mut grpc = Grpc::new(codec).apply_max_message_size_config(size, None);
            Ok(grpc.streaming(method, request.map(Body::new)).await)
        }
        .boxed()
    }
}

impl<F, D> StreamingService<D::Request> for Method<F>
where
    F: Fn() -> D,
    D: Dialogue + 'static,
    D::Push: 'static,
{
    type Response = D::Push;
    type ResponseStream = BoxStream<D::Push>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<D::Request>>) -> Self::Future {
        let (source, admission, dialogue) = (self.source.clone(), self.admission.clone(), (self.stream)());
        async move { open(source, &admission, dialogue, REQUESTS, request).await }.boxed()
    }
}
