use std::{net::SocketAddr, time::Duration};

use futures_util::{StreamExt as _, stream::BoxStream};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming, metadata::MetadataValue};

use super::Source;
use crate::{
    config::mcp::{
        Rate, ServiceOptions,
        listen::{Admission, outbox},
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
    type EstablishResourceStreamStream = BoxStream<'static, Result<Resources, Status>>;

    async fn establish_resource_stream(
        &self,
        request: Request<Streaming<RequestResources>>,
    ) -> Result<Response<Self::EstablishResourceStreamStream>, Status> {
        let admitted = self.admission.enter().await?;
        let peer = request.remote_addr().as_ref().map_or_else(|| "unknown".to_owned(), SocketAddr::to_string);
        tracing::info!(peer, "a sink has dialed");
        let (pushes, outgoing) = mpsc::channel(1);
        let source = self.source.clone();
        tokio::spawn(async move {
            let (machine, rate) = (source.machine(), source.requests());
            let served = source.exchange(machine, peer.clone(), request.into_inner(), pushes, rate).await;
            tracing::info!(peer, status = %served.status, "the stream of a sink is over");
            drop(admitted);
        });
        let mut response = Response::new(outbox(outgoing).boxed());
        response.metadata_mut().insert(VERSION, MetadataValue::from_static(env!("CARGO_PKG_VERSION")));
        Ok(response)
    }
}
