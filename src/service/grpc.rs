//! One gRPC request: the methods of templates and backends by their path, everything else by tonic's router.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Either;
use hyper::body::Incoming;
use prost::Message;
use tonic::{Code, Status, service::Routes};
use tower_service::Service as _;

use super::{ServerOptions, backend, body, body::Unary, deadline::grpc_timeout, frame::read_message};
use mixer_adapter_core::framework::frame::frame;
use mixer_adapter_host::{
    Host,
    handler::{BoxFuture, Caller},
};

pub(super) type Body = Either<Unary, tonic::body::Body>;

/// A unary method that is not a template's.
pub(super) type Rpc = Box<dyn Fn(Bytes, Caller) -> BoxFuture<'static, Result<Bytes, Status>> + Send + Sync>;

/// Makes a method of a function from message to message.
pub(super) fn rpc<Request, Response, Answer>(
    method: impl Fn(Request, Caller) -> Answer + Send + Sync + Clone + 'static,
) -> Rpc
where
    Request: Message + Default + 'static,
    Response: Message,
    Answer: Future<Output = Result<Response, Status>> + Send + 'static,
{
    Box::new(move |request, caller| {
        let method = method.clone();
        Box::pin(async move {
            let request = Request::decode(request).map_err(|error| {
                Status::invalid_argument(format!("the request cannot be decoded: {error}"))
            })?;
            Ok(frame(&method(request, caller).await?))
        })
    })
}

/// Limits on single calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallLimits {
    pub(super) message_size: usize,
    pub(super) concurrent: usize,
    pub(super) timeout: Option<Duration>,
}

/// All gRPC services of the port.
pub(crate) struct Grpc {
    pub(super) host: Arc<Host>,
    pub(super) rpcs: HashMap<&'static str, Rpc>,
    pub(super) routes: Routes,
    pub(super) limits: CallLimits,
    pub(super) in_flight: AtomicUsize,
}

impl Grpc {
    /// What an adapter server has to have: the templates' services and `InfrastructureBackend`.
    pub(crate) fn of_adapters(host: Arc<Host>) -> Self {
        let options = ServerOptions::default();
        Self {
            rpcs: HashMap::from(backend::methods(&host)),
            routes: Routes::default(),
            limits: CallLimits {
                message_size: options.max_message_size,
                concurrent: options.max_concurrent_calls,
                timeout: options.call_timeout,
            },
            in_flight: AtomicUsize::new(0),
            host,
        }
    }

    /// Serves a request, whoever reads the answer.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<tonic::body::Body> {
        match self.serve(request, 0).await {
            Ok(response) => response.map(tonic::body::Body::new),
            Err(never) => match never {},
        }
    }

    pub(super) async fn serve(
        &self,
        request: Request<Incoming>,
        connection: u64,
    ) -> Result<Response<Body>, Infallible> {
        let path = request.uri().path();
        if self.host.adapters().method(path).is_none() && !self.rpcs.contains_key(path) {
            let request = request.map(tonic::body::Body::new);
            return match self.routes.clone().call(request).await {
                Ok(response) => Ok(response.map(Either::Right)),
                Err(never) => match never {},
            };
        }
        let response = match self.unary(request, connection).await {
            Ok(response) => response,
            Err(refusal) => refusal,
        };
        Ok(response.map(Either::Left))
    }

    async fn unary(
        &self,
        request: Request<Incoming>,
        connection: u64,
    ) -> Result<Response<Unary>, Response<Unary>> {
        check_protocol(&request)?;
        let deadline = self.deadline(request.headers()).map_err(body::error)?;
        let _in_flight = InFlight::enter(&self.in_flight, self.limits.concurrent).map_err(body::error)?;
        let caller = Caller { connection, deadline };
        let (parts, incoming) = request.into_parts();
        let message = within(deadline, read_message(incoming, self.limits.message_size)).await;
        let message = message.map_err(body::error)?;
        let path = parts.uri.path();
        let answer = match self.host.adapters().method(path) {
            Some(method) => method.call(message, &*self.host, caller).await.map_err(Status::from),
            None => match self.rpcs.get(path) {
                Some(rpc) => within(deadline, rpc(message, caller)).await,
                None => Err(Status::unimplemented("no such method")),
            },
        };
        answer.map(body::ok).map_err(body::error)
    }

    /// The earlier of the caller's deadline and the server's own.
    fn deadline(&self, headers: &HeaderMap) -> Result<Option<tokio::time::Instant>, Status> {
        let timeout = match (grpc_timeout(headers)?, self.limits.timeout) {
            (Some(asked), Some(limit)) => Some(asked.min(limit)),
            (asked, limit) => asked.or(limit),
        };
        // A deadline too far away for the clock is none.
        Ok(timeout.and_then(|timeout| tokio::time::Instant::now().checked_add(timeout)))
    }
}

async fn within<T>(
    deadline: Option<tokio::time::Instant>,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match deadline {
        None => work.await,
        Some(deadline) => tokio::time::timeout_at(deadline, work)
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("the deadline passed"))),
    }
}

#[allow(clippy::result_large_err)] // the refusal is the response itself, made once a call
/// gRPC is POST with its own content type, and bodies as they are.
fn check_protocol(request: &Request<Incoming>) -> Result<(), Response<Unary>> {
    let plain = |code: StatusCode| {
        let mut response = Response::new(Unary::default());
        *response.status_mut() = code;
        response
    };
    if request.method() != Method::POST {
        return Err(plain(StatusCode::METHOD_NOT_ALLOWED));
    }
    let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    if !content_type.starts_with(b"application/grpc") {
        return Err(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    match request.headers().get("grpc-encoding").map(|value| value.as_bytes()) {
        None | Some(b"identity") => Ok(()),
        Some(other) => {
            let status = Status::new(
                Code::Unimplemented,
                format!(
                    "grpc-encoding {} is not served; send messages as they are",
                    String::from_utf8_lossy(other)
                ),
            );
            Err(body::error(status))
        }
    }
}

/// Counts a call while it runs.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    fn enter(count: &'a AtomicUsize, at_most: usize) -> Result<Self, Status> {
        let entered = Self(count);
        if count.fetch_add(1, Relaxed) >= at_most {
            return Err(Status::resource_exhausted(format!(
                "{at_most} calls are being served already; try again"
            )));
        }
        Ok(entered)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
