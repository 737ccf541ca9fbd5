//! `AggregatedMeshConfigService`, the protocol of Istio 1.0 and 1.1: the semantics of MCP with other messages
//! (docs/behaviour/mcp.md#the-aggregated-service).

use tonic::Status;

use super::stream::McpStream;
use crate::{
    proto::istio::mcp::v1alpha1::{
        IncrementalMeshConfigRequest, IncrementalMeshConfigResponse, MeshConfigRequest, MeshConfigResponse,
        RequestResources, Resources,
    },
    stream::{
        shorthand::Summarize,
        source::{
            catalogue::Catalogue,
            dialogue::{Dialogue, Event},
            driver::ConfigServer,
            method::Served,
            pushed::Pushed,
        },
    },
};

/// The method for whole collections.
pub(crate) const WHOLE: &str = "/istio.mcp.v1alpha1.AggregatedMeshConfigService/StreamAggregatedResources";
/// The method for changes of a collection.
pub(crate) const CHANGES: &str =
    "/istio.mcp.v1alpha1.AggregatedMeshConfigService/IncrementalAggregatedResources";

/// Adds the service to others.
pub(super) fn mount(router: axum::Router, served: &Served) -> axum::Router {
    let requests = served.source.options.requests;
    let whole = served.streams(requests, |_: &ConfigServer| Translated::new(false, read_whole, write_whole));
    let changes =
        served.streams(requests, |_: &ConfigServer| Translated::new(true, read_changes, write_changes));
    router.route(WHOLE, whole).route(CHANGES, changes)
}

/// A stream of MCP with other messages.
struct Translated<Req, Push> {
    machine: McpStream,
    read: fn(Req) -> RequestResources,
    write: fn(Resources) -> Push,
}

impl<Req, Push> Translated<Req, Push> {
    fn new(incremental: bool, read: fn(Req) -> RequestResources, write: fn(Resources) -> Push) -> Self {
        Self { machine: McpStream::new(incremental), read, write }
    }
}

impl<Req: prost::Message + Summarize + 'static, Push: prost::Message + Summarize + 'static> Dialogue
    for Translated<Req, Push>
{
    type Request = Req;
    type Push = Push;

    fn on_request(&mut self, request: Req, catalogue: &Catalogue) -> Result<Event, Status> {
        self.machine.on_request((self.read)(request), catalogue)
    }

    fn names_size(&self) -> usize {
        self.machine.names_size()
    }

    fn is_due(&mut self, catalogue: &Catalogue) -> bool {
        self.machine.is_due(catalogue)
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<Pushed<Push>> {
        self.machine.next(catalogue).map(|push| (self.write)(push).into())
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
