//! A tower layer that an embedder puts around the gRPC services.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use mixer_adapter::{
    prost::bytes::Bytes,
    service::{Server, ServerOptions, Workers},
    template::{ListEntry, Template as _},
    tonic::{Code, Status, body::Body},
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use test_adapters::Probe;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;
use tower_service::Service;

use super::{requests::run_command, support::Client};

const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// Records the paths of requests, and refuses one of them.
#[derive(Clone, Default)]
struct Gate {
    paths: Arc<Mutex<Vec<String>>>,
    refused: &'static str,
}

#[derive(Clone)]
struct Gated<S> {
    gate: Gate,
    inner: S,
}

impl<S> Layer<S> for Gate {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { gate: self.clone(), inner }
    }
}

impl<R, S, B> Service<Request<R>> for Gated<S>
where
    S: Service<Request<R>, Response = Response<B>, Future: Send + 'static>,
    B: hyper::body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        let path = request.uri().path().to_owned();
        let is_refused = path == self.gate.refused;
        self.gate.paths.lock().unwrap().push(path);
        if is_refused {
            return Box::pin(async { Ok(Status::permission_denied("closed by the layer").into_http()) });
        }
        let answer = self.inner.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| Body::new(body.boxed_unsync()))) })
    }
}

#[tokio::test]
async fn a_layer_receives_every_grpc_request_first_and_may_answer_it() {
    let adapters = Adapters::builder(Handle::current()).add::<Probe>().build().unwrap();
    let host = Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(Handle::current())));
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let bound = Server::new(host, ServerOptions::default()).bind(any_port, None).await.unwrap();
    let address = bound.grpc_address().unwrap().tcp().unwrap();
    let (stop, gate) = (CancellationToken::new(), Gate { refused: HEALTH, ..Gate::default() });
    let (stopped, layer) = (stop.clone(), gate.clone());
    let server = tokio::spawn(async move { bound.run_with_layer(&Workers::here(), layer, stopped).await });

    let client = Client::connect(address).await;
    run_command(&client, "layer", "allow").await.unwrap();
    let unknown = client.send("/nobody.Nothing/Call", b"").await.unwrap_err();
    assert_eq!(unknown.code, Code::Unimplemented);
    let refused = client.send(HEALTH, b"").await.unwrap_err();
    assert_eq!((refused.code, &*refused.message), (Code::PermissionDenied, "closed by the layer"));
    assert_eq!(*gate.paths.lock().unwrap(), [ListEntry::METHOD, "/nobody.Nothing/Call", HEALTH]);

    drop(client);
    stop.cancel();
    server.await.unwrap().unwrap();
}
