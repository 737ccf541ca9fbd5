//! Unary methods of services that are known when this is compiled.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use prost::Message;
use tonic::Status;

use super::words::with_valid_words;
use mixer_adapter_core::framework::frame::frame;
use mixer_adapter_host::handler::{BoxFuture, Caller};
use mixer_adapter_net::grpc::Reply;

/// A unary method that is not a template's.
pub(super) type Rpc = Arc<dyn Fn(Bytes, Caller) -> BoxFuture<'static, Result<Reply, Status>> + Send + Sync>;

/// An answer that can be sent.
pub(super) trait IntoReply {
    fn into_reply(self) -> Reply;
}

impl<M: Message> IntoReply for M {
    fn into_reply(self) -> Reply {
        frame(&self).into()
    }
}

/// An answer with an entry of metadata.
pub(super) struct WithMetadata<M> {
    pub(super) answer: M,
    pub(super) metadata: Option<(HeaderName, HeaderValue)>,
}

impl<M: Message> IntoReply for WithMetadata<M> {
    fn into_reply(self) -> Reply {
        let reply = self.answer.into_reply();
        match self.metadata {
            Some((name, value)) => reply.with_metadata(name, value),
            None => reply,
        }
    }
}

/// Makes a method of a function of a service from message to message.
pub(super) fn rpc<S, Request, Response, Answer>(
    service: &Arc<S>,
    method: fn(Arc<S>, Request, Caller) -> Answer,
) -> Rpc
where
    S: Send + Sync + 'static,
    Request: Message + Default + 'static,
    Response: IntoReply,
    Answer: Future<Output = Result<Response, Status>> + Send + 'static,
{
    limited_rpc(service, |_, _| Ok(()), method)
}

/// Like [`rpc`], for encoded requests with attributes that `admit` accepts. Their words need not be UTF-8.
pub(super) fn limited_rpc<S, Request, Response, Answer>(
    service: &Arc<S>,
    admit: impl Fn(&S, &[u8]) -> Result<(), Status> + Send + Sync + 'static,
    method: fn(Arc<S>, Request, Caller) -> Answer,
) -> Rpc
where
    S: Send + Sync + 'static,
    Request: Message + Default + 'static,
    Response: IntoReply,
    Answer: Future<Output = Result<Response, Status>> + Send + 'static,
{
    let service = service.clone();
    Arc::new(move |request, caller| {
        let (admitted, service) = (admit(&service, &request), service.clone());
        Box::pin(async move {
            admitted?;
            let decoded =
                Request::decode(request.clone()).or_else(|error| match with_valid_words(&request) {
                    Some(valid) => Request::decode(&*valid).map_err(|_| error),
                    None => Err(error),
                });
            let request = decoded.map_err(|error| {
                Status::invalid_argument(format!("the request cannot be decoded: {error}"))
            })?;
            Ok(method(service, request, caller).await?.into_reply())
        })
    })
}
