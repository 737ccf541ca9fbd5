//! A source that a test scripts.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use futures_util::{StreamExt as _, future::BoxFuture, stream::BoxStream};
use mixer_adapter_streams::proto::istio::mcp::v1alpha1::{
    RequestResources, Resources,
    resource_source_server::{ResourceSource, ResourceSourceServer},
};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming, service::Routes};

use super::sockets::{Listening, serve};

type Script = dyn Fn(usize, Conversation) -> BoxFuture<'static, Status> + Send + Sync;

/// One stream with a sink.
pub(crate) struct Conversation {
    requests: Streaming<RequestResources>,
    pushes: mpsc::Sender<Result<Resources, Status>>,
}

impl Conversation {
    /// The next request; `None` when the sink is gone.
    pub(crate) async fn receive(&mut self) -> Option<RequestResources> {
        self.requests.message().await.ok().flatten()
    }

    pub(crate) async fn send(&self, push: Resources) {
        let _ = self.pushes.send(Ok(push)).await;
    }

    /// Hears the sink out.
    pub(crate) async fn wait(mut self) -> Status {
        while self.receive().await.is_some() {}
        Status::ok("")
    }
}

/// A source that runs a script for each stream, given the number of earlier streams.
pub(crate) struct Scripted {
    pub(crate) listening: Listening,
    pub(crate) streams: Arc<AtomicUsize>,
}

impl Scripted {
    pub(crate) async fn start<F>(script: impl Fn(usize, Conversation) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Status> + Send + 'static,
    {
        let streams = Arc::new(AtomicUsize::new(0));
        let service = Service {
            script: Box::new(move |before, conversation| Box::pin(script(before, conversation))),
            streams: streams.clone(),
        };
        let listening = serve(Routes::new(ResourceSourceServer::new(service))).await;
        Self { listening, streams }
    }

    pub(crate) fn streams(&self) -> usize {
        self.streams.load(SeqCst)
    }
}

struct Service {
    script: Box<Script>,
    streams: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl ResourceSource for Service {
    type EstablishResourceStreamStream = BoxStream<'static, Result<Resources, Status>>;

    async fn establish_resource_stream(
        &self,
        request: Request<Streaming<RequestResources>>,
    ) -> Result<Response<Self::EstablishResourceStreamStream>, Status> {
        let (pushes, mut outgoing) = mpsc::channel(1);
        let conversation = Conversation { requests: request.into_inner(), pushes: pushes.clone() };
        let script = (self.script)(self.streams.fetch_add(1, SeqCst), conversation);
        tokio::spawn(async move {
            let status = script.await;
            if status.code() != tonic::Code::Ok {
                let _ = pushes.send(Err(status)).await;
            }
        });
        Ok(Response::new(futures_util::stream::poll_fn(move |context| outgoing.poll_recv(context)).boxed()))
    }
}
