use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Either;
use tower_service::Service;

use super::{
    UnaryBody,
    admission::{Admitted, CallMemory, Pools},
    stream::{OpenStream, StreamBody},
    stream_messages::{MessageRules, StreamMessages},
};
use crate::{Connection, connections::ConnectionState};

/// Limits on messages that services and clients decode, which share the memory.
#[derive(Clone, Debug)]
pub struct StreamLimits {
    /// The longest message in bytes. Decoders refuse longer ones themselves.
    pub max_message_size: usize,
    /// The memory of the messages and of the buffers of streams.
    pub memory: StreamMemory,
    /// How long a message may take to arrive after its first byte.
    pub message_timeout: Duration,
}

impl StreamLimits {
    pub(super) fn rules(&self) -> MessageRules {
        MessageRules { max_size: self.max_message_size, timeout: self.message_timeout, decoded_whole: true }
    }
}

/// Memory for messages of any number of services and clients. The first 4 KiB of each stream do not count.
#[derive(Clone, Debug)]
pub struct StreamMemory(Arc<Pools>);

impl StreamMemory {
    /// Limits the memory of all messages to `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self(Arc::new(Pools::new(usize::MAX, usize::MAX, max_bytes)))
    }

    /// Returns the memory for one message that arrives without a stream. It is released with the last clone.
    pub fn for_message(&self) -> CallMemory {
        CallMemory::new(Arc::new(Admitted::new(self.pools(), ConnectionState::detached())))
    }

    pub(super) fn pools(&self) -> Arc<Pools> {
        self.0.clone()
    }
}

/// A tower service that limits the memory of requests whose messages another service decodes, such as tonic's router.
///
/// A request has its [`CallMemory`] as an extension, for data that the service derives from the messages.
#[derive(Clone, Debug)]
pub struct StreamService<S> {
    service: S,
    pools: Arc<Pools>,
    rules: MessageRules,
    connection: Arc<ConnectionState>,
}

impl<S> StreamService<S> {
    /// Limits the requests of `service`.
    pub fn new(limits: &StreamLimits, service: S) -> Self {
        Self::with_pools(limits.memory.pools(), limits.rules(), service)
    }

    /// Limits the requests of `service` together with other ones.
    pub(super) fn with_pools(pools: Arc<Pools>, rules: MessageRules, service: S) -> Self {
        Self { service, pools, rules, connection: ConnectionState::detached() }
    }

    /// Returns the same service for the requests of one connection. All share the limits.
    #[must_use]
    pub fn on_connection(&self, connection: &Connection) -> Self
    where
        S: Clone,
    {
        Self { connection: connection.state.clone(), ..self.clone() }
    }
}

impl<S, B, A> Service<Request<B>> for StreamService<S>
where
    S: Service<
            Request<StreamMessages<B>>,
            Response = Response<A>,
            Error = Infallible,
            Future: Send + 'static,
        >,
    A: 'static,
    B: Body<Data = Bytes>,
{
    type Response = Response<Either<UnaryBody, StreamBody<A>>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let call = Arc::new(Admitted::new(self.pools.clone(), self.connection.clone()));
        let admitted = call.wait().and_then(|place| {
            let stream = OpenStream::new(place, call.clone(), self.connection.clone());
            let (mut head, body) = request.into_parts();
            head.extensions.insert(CallMemory::new(call.clone()));
            let messages =
                StreamMessages::new(&head.headers, body, call.clone(), self.rules, stream.token())?;
            Ok((stream, Request::from_parts(head, messages)))
        });
        let (stream, request) = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => return Box::pin(async move { Ok(refusal.into_http().map(Either::Left)) }),
        };
        let (registered, mut evicted) = stream.register();
        call.set_called();
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer = tokio::select! {
                biased;
                answer = answer => answer?,
                Ok(limit) = &mut evicted => return Ok(limit.exhausted().into_http().map(Either::Left)),
            };
            Ok(answer.map(|body| Either::Right(StreamBody::new(body, (stream, registered), evicted))))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::{Ready, ready};

    use http_body_util::{BodyExt as _, Full};
    use tokio::sync::mpsc;

    use super::*;
    use crate::{Limit, LimitHits, connections::Connections};

    type Message = StreamMessages<Pending>;

    /// A body that nothing arrives of.
    struct Pending;

    impl Body for Pending {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    /// Reads requests in tasks of its own.
    #[derive(Clone)]
    struct Reader(mpsc::Sender<Message>);

    impl Service<Request<Message>> for Reader {
        type Response = Response<Full<Bytes>>;
        type Error = Infallible;
        type Future = Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Message>) -> Self::Future {
            let sent = self.0.try_send(request.into_body());
            ready(Ok(Response::new(sent.map(|()| Full::default()).unwrap_or_default())))
        }
    }

    #[tokio::test]
    async fn streams_give_way_although_their_peers_do_not_read() {
        let rules = MessageRules { max_size: 1 << 20, timeout: Duration::from_secs(10), decoded_whole: true };
        let pools = Arc::new(Pools::new(0, 3, 1 << 20));
        let (reader, mut requests) = mpsc::channel(1);
        let service = StreamService::with_pools(pools, rules, Reader(reader));
        let hits = Arc::new(LimitHits::default());
        let port = Connections::new(hits.clone());
        let on = |id| StreamService { connection: port.add(id), ..service.clone() };
        // Nobody polls the responses of the first connection, as if its windows were exhausted.
        let (mut busy, mut responses, mut read) = (on(1), Vec::new(), Vec::new());
        for _ in 0..3 {
            responses.push(busy.call(Request::new(Pending)).await.unwrap());
            read.push(requests.recv().await.unwrap());
        }
        for id in [2, 3] {
            let response = on(id).call(Request::new(Pending)).await.unwrap();
            assert!(response.headers().get("grpc-status").is_none(), "{id}");
            responses.push(response);
            let mut given_way = read.pop().unwrap();
            assert!(given_way.frame().await.is_none(), "{id}");
        }
        assert_eq!(hits.get(Limit::WaitingCalls), 2);
        let refused = on(4).call(Request::new(Pending)).await.unwrap();
        assert_eq!(refused.headers()["grpc-status"], "8", "all have one now");
    }
}
