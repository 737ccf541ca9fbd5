//! The adapters of a test as a server: the gRPC services of their host on pipes, with injected faults.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use parking_lot::Mutex;
use tokio::{io::DuplexStream, runtime::Handle as Runtime};
use tokio_util::sync::CancellationToken;
use tonic::{Status, body::Body};
use tower_service::Service as _;

use super::{InjectedFault, fault::MALFORMED};
use crate::service::{GrpcService, local_services};
use mixer_adapter_engine::remote::InProcessTransport;
use mixer_adapter_host::Host;
use mixer_adapter_net::grpc::frame;

/// The capacity of a pipe in bytes.
const PIPE: usize = 64 << 10;

pub(super) struct Backend {
    host: Arc<Host>,
    grpc: GrpcService,
    pub(super) faults: Mutex<VecDeque<InjectedFault>>,
}

impl Backend {
    pub(super) fn new(host: Arc<Host>) -> Arc<Self> {
        Arc::new(Self { grpc: local_services(host.clone()), host, faults: Mutex::default() })
    }

    /// Returns a wire whose connections are served on `runtime`.
    pub(super) fn transport(self: &Arc<Self>, runtime: Runtime) -> InProcessTransport {
        let backend = self.clone();
        InProcessTransport::new(move || {
            let (client, server) = tokio::io::duplex(PIPE);
            runtime.spawn(backend.clone().serve(server));
            client
        })
    }

    async fn serve(self: Arc<Self>, stream: DuplexStream) {
        let cut = CancellationToken::new();
        let service = service_fn(|request| {
            let (backend, cut) = (self.clone(), cut.clone());
            async move { Ok::<_, Infallible>(backend.answer(request, &cut).await) }
        });
        let http = http2::Builder::new(TokioExecutor::new());
        let _ = cut.run_until_cancelled(http.serve_connection(TokioIo::new(stream), service)).await;
    }

    async fn answer(&self, request: Request<Incoming>, cut: &CancellationToken) -> Response<Body> {
        match self.fault(request.uri().path()) {
            None => {}
            Some(InjectedFault::Delay(delay)) => tokio::time::sleep(delay).await,
            Some(InjectedFault::Error(code, message)) => {
                return Status::new(tonic::Code::from(code as i32), message).into_http();
            }
            Some(InjectedFault::Dropped) => {
                cut.cancel();
                std::future::pending::<()>().await;
            }
            Some(InjectedFault::Malformed) => return message(&MALFORMED),
            Some(InjectedFault::Answer(bytes)) => return message(&bytes),
            Some(InjectedFault::LostSessions) => _ = self.host.sessions().clear(),
        }
        match self.grpc.clone().call(request).await {
            Ok(response) => response.map(Body::new),
            Err(never) => match never {},
        }
    }

    /// Returns the fault of a call; calls of the session service have none.
    fn fault(&self, path: &str) -> Option<InjectedFault> {
        self.host.adapters().method(path)?;
        self.faults.lock().pop_front()
    }
}

/// A response with this message.
fn message(message: &Bytes) -> Response<Body> {
    // Written by a test: far below 4 GiB.
    let frame = frame(&[message]).unwrap_or_default();
    let ok = HeaderMap::from_iter([(Status::GRPC_STATUS, HeaderValue::from_static("0"))]);
    let body = Full::new(frame).with_trailers(async { Some(Ok(ok)) });
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}
