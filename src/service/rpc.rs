//! Unary methods of services that are known when this is compiled.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use http::{HeaderName, HeaderValue};
use prost::{DecodeError, Message, Name};
use prost_reflect::DescriptorPool;
use tonic::Status;

use mixer_adapter_core::{
    framework::{frame::frame, lossy_text},
    proto,
};
use mixer_adapter_host::handler::{BoxFuture, Caller};
use mixer_adapter_net::grpc::Reply;

/// A unary method that is not a template's.
pub(super) type Rpc = Arc<dyn Fn(Bytes, Caller) -> BoxFuture<'static, Result<Reply, Status>> + Send + Sync>;

/// Unary methods by path.
pub(super) type Rpcs = HashMap<&'static str, Rpc, RandomState>;

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

/// The messages of all requests.
static REQUESTS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let mut pool = DescriptorPool::new();
    for descriptors in [
        proto::DESCRIPTORS,
        include_bytes!(concat!(env!("OUT_DIR"), "/mixer.bin")),
        include_bytes!(concat!(env!("OUT_DIR"), "/envoy.bin")),
    ] {
        // Tests find the messages of each.
        let _ = pool.decode_file_descriptor_set(descriptors);
    }
    pool
});

/// Makes a method of a function of a service from message to message. Text in requests need not be UTF-8.
pub(super) fn rpc<S, Request, Response, Answer>(
    service: &Arc<S>,
    method: fn(Arc<S>, Box<Request>, Caller) -> Answer,
) -> Rpc
where
    S: Send + Sync + 'static,
    Request: Name + Default + 'static,
    Response: IntoReply,
    Answer: Future<Output = Result<Response, Status>> + Send + 'static,
{
    limited_rpc(service, |_, _| Ok(()), method)
}

/// Like [`rpc`], for encoded requests that `admit` accepts.
pub(super) fn limited_rpc<S, Request, Response, Answer>(
    service: &Arc<S>,
    admit: impl Fn(&S, &[u8]) -> Result<(), Status> + Send + Sync + 'static,
    method: fn(Arc<S>, Box<Request>, Caller) -> Answer,
) -> Rpc
where
    S: Send + Sync + 'static,
    Request: Name + Default + 'static,
    Response: IntoReply,
    Answer: Future<Output = Result<Response, Status>> + Send + 'static,
{
    let service = service.clone();
    Arc::new(move |request, caller| {
        let (admitted, service) = (admit(&service, &request), service.clone());
        Box::pin(async move {
            admitted?;
            let request = lossy_text::decode(request, || REQUESTS.get_message_by_name(&Request::full_name()));
            // In a box: it passes through several functions.
            let request: Box<Request> = request.map_err(|error: DecodeError| {
                Status::invalid_argument(format!("the request cannot be decoded: {error}"))
            })?;
            Ok(method(service, request, caller).await?.into_reply())
        })
    })
}
