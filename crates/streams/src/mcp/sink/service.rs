use std::time::Duration;

use futures_util::{StreamExt as _, stream::BoxStream};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    proto::istio::mcp::v1alpha1::{
        RequestResources, Resources,
        resource_sink_server::{ResourceSink, ResourceSinkServer},
    },
    stream::{
        admission::{Admission, AdmittedStream, ServiceOptions},
        listen::{outbox, peer_name},
        metrics::SINK,
        sink::driver::{self, Sink},
    },
};
use mixer_adapter_net::Rate;

/// The service that sources connect to: `ResourceSink`. Several may be connected; the newest push of a collection
/// counts.
#[derive(Debug)]
pub struct ResourceSinkService {
    sink: Sink,
    admission: Admission,
}

impl ResourceSinkService {
    /// Returns the options for sinks: few sources, large pushes.
    pub fn default_options() -> ServiceOptions {
        ServiceOptions {
            max_streams: 16,
            new_streams: Rate { burst: 100, every: Duration::from_secs(1) },
            max_message_size: 64 << 20,
        }
    }

    /// Returns the service, for [`listen`](crate::stream::listen()) or a server with others.
    pub fn serve(sink: Sink, options: &ServiceOptions) -> ResourceSinkServer<Self> {
        let service = Self { sink, admission: Admission::new(options, &SINK) };
        ResourceSinkServer::new(service).max_decoding_message_size(options.max_message_size)
    }
}

#[tonic::async_trait]
impl ResourceSink for ResourceSinkService {
    type EstablishResourceStreamStream = BoxStream<'static, Result<RequestResources, Status>>;

    async fn establish_resource_stream(
        &self,
        request: Request<Streaming<Resources>>,
    ) -> Result<Response<Self::EstablishResourceStreamStream>, Status> {
        let admitted = self.admission.enter(request.extensions()).await?;
        let peer = peer_name(&request);
        tracing::info!(peer, metadata = ?request.metadata(), "configuration source connected");
        let (stream, requests) = self.sink.open(peer).await;
        tokio::spawn(async move {
            receive(stream, request.into_inner(), admitted).await;
        });
        Ok(Response::new(outbox(requests).boxed()))
    }
}

/// Receives pushes until either side ends the stream.
async fn receive(stream: driver::Stream, mut pushes: Streaming<Resources>, admitted: AdmittedStream) {
    let status = loop {
        tokio::select! {
            push = pushes.message() => match push {
                Ok(Some(push)) => stream.received(push).await,
                Ok(None) => break Status::ok("the source ended it"),
                Err(status) => break status,
            },
            status = admitted.evicted() => break status,
            () = stream.ended.cancelled() => break Status::aborted("the sink ended it"),
        }
    };
    tracing::info!(%status, "stream of configuration source closed");
    stream.closed(Some(status)).await;
}
