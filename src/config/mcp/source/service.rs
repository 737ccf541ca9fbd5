use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming, codegen::BoxStream, metadata::MetadataValue};

use super::{Dialogue, Source};
use crate::{
    config::mcp::{
        Rate, ServiceOptions,
        listen::{Admission, outbox, sender},
    },
    proto::istio::mcp::v1alpha1::{
        RequestResources, Resources,
        resource_source_server::{ResourceSource, ResourceSourceServer},
    },
};

/// Where sources say which version of their program they are.
const VERSION: &str = "config.source.version";

/// The service that sinks dial: `ResourceSource`.
#[derive(Debug)]
pub struct ResourceSourceService {
    source: Source,
    admission: Admission,
}

impl ResourceSourceService {
    /// What sources should use: many sinks, small requests.
    pub fn default_options() -> ServiceOptions {
        ServiceOptions {
            max_streams: 10_000,
            new_streams: Rate { burst: 100, every: Duration::from_millis(10) },
            max_message_size: 1 << 20,
        }
    }

    /// The service, for [`listen`](crate::config::mcp::listen()) or a server with others.
    pub fn serve(source: Source, options: &ServiceOptions) -> ResourceSourceServer<Self> {
        let service = Self { source, admission: Admission::new(options) };
        ResourceSourceServer::new(service).max_decoding_message_size(options.max_message_size)
    }
}

#[tonic::async_trait]
impl ResourceSource for ResourceSourceService {
    type EstablishResourceStreamStream = BoxStream<Resources>;

    async fn establish_resource_stream(
        &self,
        request: Request<Streaming<RequestResources>>,
    ) -> Result<Response<Self::EstablishResourceStreamStream>, Status> {
        let (machine, rate) = (self.source.machine(), self.source.requests());
        open(self.source.clone(), &self.admission, machine, rate, request).await
    }
}

/// Lets a stream in, and serves it in a task of its own.
pub(crate) async fn open<D>(
    source: Source,
    admission: &Admission,
    dialogue: D,
    rate: Rate,
    request: Request<Streaming<D::Request>>,
) -> Result<Response<BoxStream<D::Push>>, Status>
where
    D: Dialogue + 'static,
    D::Push: 'static,
{
    let admitted = admission.enter().await?;
    let peer = sender(&request);
    tracing::info!(peer, "a sink has dialed");
    let (pushes, outgoing) = mpsc::channel(1);
    tokio::spawn(async move {
        let served = source.exchange(dialogue, peer.clone(), request.into_inner(), pushes, rate).await;
        tracing::info!(peer, status = %served.status, "the stream of a sink is over");
        drop(admitted);
    });
    let pushes: BoxStream<D::Push> = outbox(outgoing).boxed();
    let mut response = Response::new(pushes);
    response.metadata_mut().insert(VERSION, MetadataValue::from_static(env!("CARGO_PKG_VERSION")));
    Ok(response)
}
