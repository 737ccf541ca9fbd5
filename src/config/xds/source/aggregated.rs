//! `AggregatedMeshConfigService`, the protocol of Istio 1.0 and 1.1: that of MCP in other messages (spec: mcp-and-xds.md a).

use std::{collections::BTreeMap, sync::Arc};

use tonic::{Request, Response, Status, Streaming, codegen::BoxStream};

use crate::{
    config::{
        mcp::{
            Admission, ServiceOptions,
            source::{Catalogue, Dialogue, Heard, Machine, Source, open},
        },
        xds::collection_of,
    },
    proto::istio::mcp::v1alpha1::{
        IncrementalMeshConfigRequest, IncrementalMeshConfigResponse, MeshConfigRequest, MeshConfigResponse,
        RequestResources, Resources,
        aggregated_mesh_config_service_server::{
            AggregatedMeshConfigService, AggregatedMeshConfigServiceServer,
        },
    },
};

/// The service.
pub(super) fn service(
    source: Source,
    admission: Arc<Admission>,
    options: &ServiceOptions,
) -> AggregatedMeshConfigServiceServer<impl AggregatedMeshConfigService> {
    AggregatedMeshConfigServiceServer::new(Aggregated { source, admission })
        .max_decoding_message_size(options.max_message_size)
}

#[derive(Debug)]
struct Aggregated {
    source: Source,
    admission: Arc<Admission>,
}

#[tonic::async_trait]
impl AggregatedMeshConfigService for Aggregated {
    type StreamAggregatedResourcesStream = BoxStream<MeshConfigResponse>;
    type IncrementalAggregatedResourcesStream = BoxStream<IncrementalMeshConfigResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<MeshConfigRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let machine = Machine::new(false);
        let dialogue = Translated { machine, names: BTreeMap::new(), read: read_whole, write: write_whole };
        open(self.source.clone(), &self.admission, dialogue, self.source.requests(), request).await
    }

    async fn incremental_aggregated_resources(
        &self,
        request: Request<Streaming<IncrementalMeshConfigRequest>>,
    ) -> Result<Response<Self::IncrementalAggregatedResourcesStream>, Status> {
        let machine = Machine::new(true);
        let dialogue =
            Translated { machine, names: BTreeMap::new(), read: read_changes, write: write_changes };
        open(self.source.clone(), &self.admission, dialogue, self.source.requests(), request).await
    }
}

/// A stream of MCP in other messages.
struct Translated<Asks, Push> {
    machine: Machine,
    /// What the sink calls the collections: 1.0 by the type of their resources, 1.1 as they are called.
    names: BTreeMap<String, String>,
    read: fn(Asks) -> RequestResources,
    write: fn(Resources) -> Push,
}

impl<Asks: prost::Message, Push: Send> Dialogue for Translated<Asks, Push> {
    type Request = Asks;
    type Push = Push;

    fn heard(&mut self, request: Asks, catalogue: &Catalogue) -> Result<Heard, Status> {
        let mut request = (self.read)(request);
        let name = std::mem::take(&mut request.collection);
        let is_type = name.split('/').count() == 2;
        let collection = if is_type { collection_of(&name).as_str().to_owned() } else { name.clone() };
        request.collection.clone_from(&collection);
        let heard = self.machine.heard(request, catalogue)?;
        self.names.insert(collection, name);
        Ok(heard)
    }

    fn is_due(&self, catalogue: &Catalogue) -> bool {
        Dialogue::is_due(&self.machine, catalogue)
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<Push> {
        let mut push = self.machine.next(catalogue)?;
        if let Some(name) = self.names.get(&push.collection) {
            push.collection.clone_from(name);
        }
        Some((self.write)(push))
    }
}

fn read_whole(request: MeshConfigRequest) -> RequestResources {
    RequestResources {
        sink_node: request.sink_node,
        collection: request.type_url,
        response_nonce: request.response_nonce,
        error_detail: request.error_detail,
        ..RequestResources::default()
    }
}

fn write_whole(push: Resources) -> MeshConfigResponse {
    MeshConfigResponse {
        version_info: push.system_version_info,
        resources: push.resources,
        type_url: push.collection,
        nonce: push.nonce,
    }
}

fn read_changes(request: IncrementalMeshConfigRequest) -> RequestResources {
    RequestResources {
        sink_node: request.sink_node,
        collection: request.type_url,
        initial_resource_versions: request.initial_resource_versions,
        response_nonce: request.response_nonce,
        error_detail: request.error_detail,
        incremental: true,
    }
}

fn write_changes(push: Resources) -> IncrementalMeshConfigResponse {
    IncrementalMeshConfigResponse {
        system_version_info: push.system_version_info,
        resources: push.resources,
        removed_resources: push.removed_resources,
        nonce: push.nonce,
    }
}
