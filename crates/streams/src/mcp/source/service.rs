use tonic::service::Routes;

use super::{aggregated, stream::McpStream};
use crate::stream::{
    admission::ServiceOptions,
    source::{driver::ConfigServer, method::Served},
};

/// The method for the streams of sinks.
pub(crate) const METHOD: &str = "/istio.mcp.v1alpha1.ResourceSource/EstablishResourceStream";

/// Returns the limits of a source: many sinks, small requests.
pub fn default_options() -> ServiceOptions {
    ServiceOptions::of_source(1 << 20)
}

/// Adds the services that sinks connect to: `ResourceSource`, and `AggregatedMeshConfigService`.
pub fn mount(mut services: Routes, source: &ConfigServer, options: &ServiceOptions) -> Routes {
    let served = Served::new(source, options);
    let streams = served
        .streams(source.options.requests, |source: &ConfigServer| McpStream::new(source.options.incremental));
    let router = services.axum_router_mut();
    let grown = aggregated::mount(std::mem::take(router), &served);
    *router = grown.route(METHOD, streams);
    services
}
