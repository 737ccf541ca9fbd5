use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::Body;
use http_body_util::Either;
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use tower_service::Service;

use crate::Connection;

use super::{
    body::{self, UnaryBody},
    frame::read_message,
    timeout::grpc_timeout,
};

/// The unary methods of a server, by path.
pub trait Methods: Send + Sync + 'static {
    /// Whether the path names one of the methods.
    fn contains(&self, path: &str) -> bool;

    /// Answers a message with a framed message. Called with paths that [`contains`](Self::contains) accepts; keeps the deadline of
    /// the call itself.
    fn call(
        &self,
        path: &str,
        message: Bytes,
        call: Call,
    ) -> impl Future<Output = Result<Bytes, Status>> + Send;
}

/// The context of one call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Call {
    /// The number of the connection, as in [`Connection::id`](crate::Connection::id).
    pub connection: u64,
    /// The authenticated name of the peer; `None` for peers that are not authenticated.
    pub peer: Option<Arc<str>>,
    /// The earlier of the caller's deadline and the server's own.
    pub deadline: Option<Instant>,
}

/// Limits on single calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// The longest request message in bytes.
    pub max_message_size: usize,
    /// Calls at a time, all connections together.
    pub max_concurrent: usize,
    /// The longest time for a call; `None` leaves it to the caller.
    pub timeout: Option<Duration>,
}

/// A tower service that answers [`Methods`] itself and passes every other request to a fallback, such as tonic's router.
pub struct UnaryService<M, F> {
    methods: Arc<Shared<M>>,
    fallback: F,
    connection: u64,
    peer: Option<Arc<str>>,
    guard: Option<Arc<dyn Send + Sync>>,
}

struct Shared<M> {
    methods: M,
    limits: CallLimits,
    in_flight: AtomicUsize,
}

impl<M: Methods, F> UnaryService<M, F> {
    /// Serves `methods`, and by `fallback` what is none of them.
    pub fn new(methods: M, limits: CallLimits, fallback: F) -> Self {
        Self {
            methods: Arc::new(Shared { methods, limits, in_flight: AtomicUsize::new(0) }),
            fallback,
            connection: 0,
            peer: None,
            guard: None,
        }
    }

    /// Returns the same service for the calls of one connection. All share the limit on concurrent calls.
    #[must_use]
    pub fn on_connection(&self, connection: &Connection) -> Self
    where
        F: Clone,
    {
        Self { connection: connection.id, peer: connection.peer(), ..self.clone() }
    }

    /// Drops `guard` when the connection and the last of its calls have ended.
    #[must_use]
    pub fn with_guard(self, guard: impl Send + Sync + 'static) -> Self {
        Self { guard: Some(Arc::new(guard)), ..self }
    }
}

impl<M, F: Clone> Clone for UnaryService<M, F> {
    fn clone(&self) -> Self {
        Self {
            methods: self.methods.clone(),
            fallback: self.fallback.clone(),
            connection: self.connection,
            peer: self.peer.clone(),
            guard: self.guard.clone(),
        }
    }
}

impl<M, F> fmt::Debug for UnaryService<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnaryService").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl<M, F, B, A> Service<Request<B>> for UnaryService<M, F>
where
    M: Methods,
    F: Service<Request<B>, Response = Response<A>, Error = Infallible, Future: Send + 'static>,
    B: Body<Data = Bytes, Error: fmt::Display> + Send + Unpin + 'static,
{
    type Response = Response<Either<UnaryBody, A>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.fallback.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !self.methods.methods.contains(request.uri().path()) {
            let answer = self.fallback.call(request);
            return Box::pin(async move { Ok(answer.await?.map(Either::Right)) });
        }
        let (shared, connection, peer) = (self.methods.clone(), self.connection, self.peer.clone());
        let guard = self.guard.clone();
        Box::pin(async move {
            let _guard = guard;
            let answer = shared.answer(request, connection, peer).await;
            Ok(answer.unwrap_or_else(|refusal| refusal).map(Either::Left))
        })
    }
}

impl<M: Methods> Shared<M> {
    async fn answer<B>(
        &self,
        request: Request<B>,
        connection: u64,
        peer: Option<Arc<str>>,
    ) -> Result<Response<UnaryBody>, Response<UnaryBody>>
    where
        B: Body<Data = Bytes, Error: fmt::Display> + Unpin,
    {
        check_protocol(&request)?;
        let answer = self.unary(request, connection, peer).await;
        Ok(answer.map_or_else(Status::into_http, body::ok))
    }

    async fn unary<B>(
        &self,
        request: Request<B>,
        connection: u64,
        peer: Option<Arc<str>>,
    ) -> Result<Bytes, Status>
    where
        B: Body<Data = Bytes, Error: fmt::Display> + Unpin,
    {
        let deadline = self.deadline(request.headers())?;
        let _in_flight = InFlight::enter(&self.in_flight, self.limits.max_concurrent)?;
        let (parts, body) = request.into_parts();
        let message = within(deadline, read_message(body, self.limits.max_message_size)).await?;
        self.methods.call(parts.uri.path(), message, Call { connection, peer, deadline }).await
    }

    fn deadline(&self, headers: &HeaderMap) -> Result<Option<Instant>, Status> {
        let timeout = match (grpc_timeout(headers)?, self.limits.timeout) {
            (Some(asked), Some(limit)) => Some(asked.min(limit)),
            (asked, limit) => asked.or(limit),
        };
        // A deadline beyond the range of the clock is none.
        Ok(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }
}

impl Call {
    /// Awaits `work` until the deadline of the call.
    ///
    /// # Errors
    /// Those of `work`, and DEADLINE_EXCEEDED.
    pub async fn within_deadline<T>(
        &self,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        within(self.deadline, work).await
    }
}

async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match deadline {
        None => work.await,
        Some(deadline) => timeout_at(deadline, work)
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("the deadline passed"))),
    }
}

/// Refuses what is not gRPC (POST with its own content type), and compressed messages.
#[allow(clippy::result_large_err)] // the refusal is the response itself, made once a call
fn check_protocol<B>(request: &Request<B>) -> Result<(), Response<UnaryBody>> {
    let plain = |code: StatusCode| {
        let mut response = Response::new(UnaryBody::default());
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
            let encoding = String::from_utf8_lossy(other);
            let text = format!("grpc-encoding {encoding} is not supported; send uncompressed messages");
            Err(Status::unimplemented(text).into_http())
        }
    }
}

/// Counts a call until it is dropped.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    fn enter(count: &'a AtomicUsize, max: usize) -> Result<Self, Status> {
        let entered = Self(count);
        if count.fetch_add(1, Relaxed) >= max {
            return Err(Status::resource_exhausted(format!(
                "{max} calls are being served already; try again"
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
