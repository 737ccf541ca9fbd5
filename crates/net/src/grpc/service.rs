use std::{
    convert::Infallible,
    error::Error,
    fmt,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode, header::AUTHORIZATION, request::Parts,
};
use http_body::Body;
use http_body_util::Either;
use tokio::{
    task::JoinError,
    time::{Instant, timeout_at},
};
use tonic::Status;
use tower_service::Service;

use super::{
    Caller, TraceParent,
    admission::{Admitted, CallMemory, Pools},
    body::{self, UnaryBody},
    frame::read_message,
    headers::CallHeaders,
    message_limit::limit_message,
    stream::StreamBody,
    stream_messages::{MessageRules, StreamMessages},
    stream_service::StreamService,
    timeout_header::grpc_timeout,
};
use crate::{
    Authorization, Connection, Limit,
    connections::{ConnectionState, Stage},
    workers::poll_once,
};

/// The unary methods of a server, by path.
pub trait Methods: Send + Sync + 'static {
    /// A method.
    type Method: Send;

    /// Returns the method with a path.
    fn find(&self, path: &str) -> Option<Self::Method>;

    /// Whether a client that called this method has a session, so that its connection is exempt from idle eviction.
    fn keeps_connection(&self, method: &Self::Method) -> bool;

    /// Whether the fallback answers requests with this path as soon as their only message has arrived, so that
    /// [`CallLimits::body_timeout`] holds for them, too.
    fn has_one_message(&self, path: &str) -> bool;

    /// Answers a message with a framed message. Keeps the deadline of the call itself.
    fn call(
        &self,
        method: Self::Method,
        message: Bytes,
        caller: Caller,
    ) -> impl Future<Output = Result<Reply, Status>> + Send;
}

/// The answer of a method.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Reply {
    /// The framed message.
    pub message: Bytes,
    /// An entry of the response metadata.
    pub metadata: Option<(HeaderName, HeaderValue)>,
}

impl Reply {
    /// Adds an entry of the response metadata.
    #[must_use]
    pub fn with_metadata(self, name: HeaderName, value: HeaderValue) -> Self {
        Self { metadata: Some((name, value)), ..self }
    }
}

impl From<Bytes> for Reply {
    fn from(message: Bytes) -> Self {
        Self { message, metadata: None }
    }
}

/// Limits on single calls; a port decides all of them (docs/decisions/0016-open-and-closed-types.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// The longest request message in bytes.
    pub max_message_size: usize,
    /// Calls at a time, all connections together, from the arrival of the request until the answer is written. When there are
    /// more, the connection with the most loses its newest one to a connection with fewer.
    pub max_concurrent: usize,
    /// Calls at a time whose requests have not arrived, and open streams; connections share them as they share the calls.
    pub max_waiting: usize,
    /// Bytes at a time of requests and of answers that are not written, beyond 4 KiB of each call.
    pub max_bytes: usize,
    /// How long the request of a unary call may take to arrive.
    pub body_timeout: Duration,
    /// The longest time for a call; `None` leaves it to the caller.
    pub timeout: Option<Duration>,
}

/// Requests of more bytes take so long to decode and to answer that small ones should not wait for them.
const LARGE_MESSAGE: usize = 32 << 10;

/// The longest message for the fallback in bytes, as in tonic's decoders.
const MAX_STREAMED_MESSAGE: usize = 4 << 20;

/// A tower service that answers [`Methods`] itself and passes every other request to a fallback, such as tonic's router.
#[derive(Clone)]
pub struct UnaryService<M, F> {
    methods: Arc<Shared<M>>,
    fallback: StreamService<F>,
    connection: Arc<ConnectionState>,
    remote: Option<SocketAddr>,
    peer: Option<Arc<str>>,
    guard: Option<Arc<dyn Send + Sync>>,
}

struct Shared<M> {
    methods: M,
    authorization: Option<Arc<Authorization>>,
    limits: CallLimits,
    pools: Arc<Pools>,
}

impl<M: Methods, F> UnaryService<M, F> {
    /// Serves `methods`, and every other path by `fallback`, to the clients that `authorization` allows; `None` allows all.
    pub fn new(
        methods: M,
        authorization: Option<Arc<Authorization>>,
        limits: CallLimits,
        fallback: F,
    ) -> Self {
        let pools = Arc::new(Pools::new(limits.max_concurrent, limits.max_waiting, limits.max_bytes));
        let streamed = MessageRules {
            max_size: MAX_STREAMED_MESSAGE,
            timeout: limits.body_timeout,
            decoded_whole: false,
        };
        Self {
            methods: Arc::new(Shared { methods, authorization, limits, pools: pools.clone() }),
            fallback: StreamService::with_pools(pools, streamed, fallback),
            connection: ConnectionState::detached(),
            remote: None,
            peer: None,
            guard: None,
        }
    }

    /// Returns the same service for the calls of one connection. All share the limits.
    #[must_use]
    pub fn on_connection(&self, connection: &Connection) -> Self
    where
        F: Clone,
    {
        let peer = match &self.methods.authorization {
            Some(authorization) => authorization.certificate_name(connection),
            None => connection.peer(),
        };
        Self {
            methods: self.methods.clone(),
            fallback: self.fallback.on_connection(connection),
            connection: connection.state.clone(),
            remote: connection.remote,
            peer,
            guard: self.guard.clone(),
        }
    }

    /// Drops `guard` when the connection and the last of its calls have ended.
    #[must_use]
    pub fn with_guard(self, guard: impl Send + Sync + 'static) -> Self {
        Self { guard: Some(Arc::new(guard)), ..self }
    }
}

impl<M, F> fmt::Debug for UnaryService<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnaryService").field("connection", &self.connection.id()).finish_non_exhaustive()
    }
}

impl<M, F, B, A> Service<Request<B>> for UnaryService<M, F>
where
    M: Methods,
    F: Service<
            Request<StreamMessages<B>>,
            Response = Response<A>,
            Error = Infallible,
            Future: Send + 'static,
        >,
    A: 'static,
    B: Body<Data = Bytes, Error: Error + Send + Sync> + Send + Unpin + 'static,
{
    type Response = Response<Either<UnaryBody, StreamBody<A>>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.fallback.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Here, and not when the answer is first polled: a client can begin any number of calls before that.
        let Some(begun) = self.connection.begin() else {
            let refusal = Limit::Calls.exhausted();
            return Box::pin(async move { Ok(refusal.into_http().map(Either::Left)) });
        };
        let peer = match &self.methods.authorization {
            None => self.peer.clone(),
            Some(authorization) => {
                let (path, headers) = (request.uri().path(), request.headers());
                match authorization.check(self.peer.as_ref(), path, headers, &self.connection) {
                    Ok(peer) => peer,
                    Err(refusal) => {
                        return Box::pin(async move {
                            drop(begun);
                            Ok(refusal.into_http().map(Either::Left))
                        });
                    }
                }
            }
        };
        let Some(method) = self.methods.methods.find(request.uri().path()) else {
            let has_one_message = self.methods.methods.has_one_message(request.uri().path());
            let answer = self.fallback.call(request);
            if !has_one_message {
                return answer;
            }
            let (limit, connection) = (self.methods.limits.body_timeout, self.connection.clone());
            return Box::pin(async move {
                tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
                    connection.hit(Limit::BodyTimeout);
                    Ok(too_late(limit).into_http().map(Either::Left))
                })
            });
        };
        let call = Arc::new(Admitted::new(self.methods.pools.clone(), self.connection.clone()));
        let (shared, guard) = (self.methods.clone(), self.guard.clone());
        let caller = Caller {
            connection: self.connection.id(),
            peer,
            remote: self.remote,
            memory: Some(CallMemory::new(call.clone())),
            ..Caller::default()
        };
        // Before the future, which would hold the head otherwise: it is moved.
        let (head, body) = request.into_parts();
        let caller = match shared.complete(caller, head) {
            Ok(caller) => caller,
            Err(refusal) => {
                return Box::pin(async move {
                    drop(begun);
                    Ok(refusal.map(Either::Left))
                });
            }
        };
        Box::pin(async move {
            drop(begun);
            let _guard = guard;
            let answer = match shared.unary(method, body, &call, caller).await {
                Ok(Reply { message, metadata }) => body::ok(call.until_written(message), metadata),
                Err(error) => refused(error),
            };
            Ok(answer.map(Either::Left))
        })
    }
}

impl<M: Methods> Shared<M> {
    /// Completes the context of a call by the head of its request, or refuses the request.
    #[allow(clippy::result_large_err)] // the refusal is the response itself, made once a call
    fn complete(&self, caller: Caller, mut head: Parts) -> Result<Caller, Response<UnaryBody>> {
        // Handlers receive the headers, and could log them.
        if let Some(token) = head.headers.get_mut(AUTHORIZATION) {
            token.set_sensitive(true);
        }
        let headers = CallHeaders::read(&head.headers);
        check_protocol(&head.method, &headers)?;
        let deadline = self.deadline(&headers).map_err(refused)?;
        let request_id = headers.request_id.and_then(|id| id.to_str().ok()).map(Arc::from);
        let trace = headers.traceparent.and_then(|header| TraceParent::parse(header.as_bytes()));
        Ok(Caller { deadline, trace, request_id, metadata: Some(Arc::new(head.headers)), ..caller })
    }

    async fn unary<B>(
        self: Arc<Self>,
        method: M::Method,
        body: B,
        admitted: &Arc<Admitted>,
        caller: Caller,
    ) -> Result<Reply, Status>
    where
        B: Body<Data = Bytes, Error: fmt::Display> + Unpin,
    {
        let message = self.request_message(body, admitted, caller.deadline).await?;
        admitted.begin_work()?;
        let is_large = message.len() > LARGE_MESSAGE;
        let keeps_connection = self.methods.keeps_connection(&method);
        // Boxed, so that another thread can take it over, and so that the future around it is small: it is moved.
        let work = Box::pin(async move { self.methods.call(method, message, caller).await });
        let mut work = pin!(async {
            match admitted.worker() {
                Some(worker) if is_large => {
                    // In a box, so that the future of small calls is not larger.
                    let done = Box::pin(worker.run_large(work, admitted.large_calls()));
                    done.await.unwrap_or_else(|error| Err(aborted(&error)))
                }
                Some(worker) => worker.run(work).await.unwrap_or_else(|error| Err(aborted(&error))),
                None => work.await,
            }
        });
        let answer = match poll_once(work.as_mut()).await {
            Poll::Ready(answer) => answer,
            Poll::Pending => admitted.unless_evicted(Stage::Working, work).await,
        }?;
        admitted.release_expanded();
        admitted.add_bytes(answer.message.len())?;
        if keeps_connection {
            admitted.keep_connection();
        }
        Ok(answer)
    }

    async fn request_message<B>(
        &self,
        body: B,
        admitted: &Arc<Admitted>,
        deadline: Option<Instant>,
    ) -> Result<Bytes, Status>
    where
        B: Body<Data = Bytes, Error: fmt::Display> + Unpin,
    {
        let mut message = pin!(read_message(body, self.limits.max_message_size, admitted));
        if let Poll::Ready(message) = poll_once(message.as_mut()).await {
            return message;
        }
        // In a box, because most messages have arrived, and its timers would make the future of every call large.
        Box::pin(self.rest_of_message(message, admitted, deadline)).await
    }

    /// Waits for a message that has not arrived completely.
    async fn rest_of_message(
        &self,
        message: impl Future<Output = Result<Bytes, Status>>,
        admitted: &Arc<Admitted>,
        deadline: Option<Instant>,
    ) -> Result<Bytes, Status> {
        let _place = admitted.wait()?;
        let arrived = async {
            let limit = self.limits.body_timeout;
            tokio::time::timeout(limit, message).await.unwrap_or_else(|_| {
                admitted.hit(Limit::BodyTimeout);
                Err(too_late(limit))
            })
        };
        admitted.unless_evicted(Stage::Waiting, within(deadline, arrived)).await
    }

    fn deadline(&self, headers: &CallHeaders<'_>) -> Result<Option<Instant>, Status> {
        let timeout = match (grpc_timeout(headers.timeout)?, self.limits.timeout) {
            (Some(asked), Some(limit)) => Some(asked.min(limit)),
            (asked, limit) => asked.or(limit),
        };
        // A deadline beyond the range of the clock does not matter.
        Ok(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }
}

fn too_late(limit: Duration) -> Status {
    Status::deadline_exceeded(format!("the request did not arrive within {limit:?}"))
}

/// Awaits `work` until a deadline.
///
/// # Errors
/// Errors of `work`, and DEADLINE_EXCEEDED.
pub async fn within<T>(
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

fn refused(error: Status) -> Response<UnaryBody> {
    limit_message(error).into_http()
}

/// Returns a response without a body.
fn plain(code: StatusCode) -> Response<UnaryBody> {
    let mut response = Response::new(UnaryBody::default());
    *response.status_mut() = code;
    response
}

/// Refuses requests that are not gRPC (POST with its content type), and compressed messages.
#[allow(clippy::result_large_err)] // the refusal is the response itself, made once a call
fn check_protocol(method: &Method, headers: &CallHeaders<'_>) -> Result<(), Response<UnaryBody>> {
    if *method != Method::POST {
        return Err(plain(StatusCode::METHOD_NOT_ALLOWED));
    }
    let content_type = headers.content_type.map_or(&b""[..], |value| value.as_bytes());
    if !content_type.starts_with(b"application/grpc") {
        return Err(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    match headers.encoding.map(|value| value.as_bytes()) {
        None | Some(b"identity") => Ok(()),
        Some(other) => {
            let encoding = String::from_utf8_lossy(other);
            let text = format!("grpc-encoding {encoding} is not supported; send uncompressed messages");
            Err(Status::unimplemented(text).into_http())
        }
    }
}

/// The error of a call that another worker did not finish.
fn aborted(error: &JoinError) -> Status {
    if error.is_panic() {
        Status::internal("the call panicked")
    } else {
        Status::unavailable("the server is shutting down")
    }
}
