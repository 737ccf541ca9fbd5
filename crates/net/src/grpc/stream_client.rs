use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::{StreamLimits, StreamMessages, admission::Admitted};
use crate::connections::ConnectionState;

/// A tower service that limits the memory of responses whose messages a client decodes, such as tonic's.
#[derive(Clone, Debug)]
pub struct StreamClient<S> {
    service: S,
    limits: StreamLimits,
}

impl<S> StreamClient<S> {
    /// Limits the responses of `service`.
    pub fn new(limits: StreamLimits, service: S) -> Self {
        Self { service, limits }
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

impl<S, Q, A> Service<Request<Q>> for StreamClient<S>
where
    S: Service<Request<Q>, Response = Response<A>, Error: Into<BoxError>, Future: Send + 'static>,
    A: Body<Data = Bytes>,
{
    type Response = Response<StreamMessages<A>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.service.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let limits = self.limits.clone();
        let response = self.service.call(request);
        Box::pin(async move {
            let (head, body) = response.await.map_err(Into::into)?.into_parts();
            let call = Arc::new(Admitted::new(limits.memory.pools(), ConnectionState::detached()));
            let rules = limits.rules();
            let messages = StreamMessages::new(&head.headers, body, call, rules, CancellationToken::new())?;
            Ok(Response::from_parts(head, messages))
        })
    }
}
