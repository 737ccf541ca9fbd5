use std::{collections::BTreeMap, sync::Arc};

use axum::{Json as JsonResponse, extract::State, routing::get};
use prometheus_client::registry::Registry;
use serde_json::{Map, Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::service::{self, Families, Readiness, Scraped, page};
use mixer_adapter_net::{LimitHits, Listener};
use mixer_adapter_streams::stream::{
    metrics::{McpMetrics, SOURCE},
    source::ConfigServer,
};

/// Serves the admin port of a source: its collections, and the versions that each sink has. Specs are not shown.
pub(super) async fn serve(
    listener: Listener,
    name: String,
    source: ConfigServer,
    readiness: Readiness,
    registry: Registry,
    stop: CancellationToken,
) {
    let config = get(async |State((name, source)): State<(String, ConfigServer)>| {
        JsonResponse(status(&name, &source))
    });
    let router = service::vitals(readiness, registry, None)
        .route("/", get(|| async { page::SOURCE.response() }))
        .route("/config", config.with_state((name, source)));
    service::serve_admin(listener, router, stop).await;
}

/// Returns the metrics of a source and of its limits.
pub(super) fn metrics(source: &ConfigServer, hits: Arc<LimitHits>) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scraped(service::encode_process)));
    registry.register_collector(Box::new(McpMetrics));
    service::add_limits(&mut registry, hits);
    let source = source.clone();
    registry.register_collector(Box::new(Scraped(move |families: &mut Families<'_>| {
        families.gauge("mixer_adapter_source_faults", errors(&source).count())
    })));
    registry
}

/// The faults of the configuration, without warnings.
pub(super) fn errors(source: &ConfigServer) -> impl Iterator<Item = String> {
    let faults = source.faults();
    let errors: Vec<_> = faults.iter().filter(|fault| fault.is_error()).map(ToString::to_string).collect();
    errors.into_iter()
}

/// Returns the collections, and the versions that each sink has.
fn status(name: &str, source: &ConfigServer) -> Json {
    let catalogue = source.catalogue();
    let (mut collections, mut not_served) = (Map::new(), Map::new());
    for (name, snapshot) in catalogue.collections() {
        let Some(snapshot) = snapshot else { continue };
        let (version, resources) = (snapshot.version().to_string(), snapshot.resources().len());
        collections.insert(name.to_string(), json!({ "version": version, "resources": resources }));
        let reasons: BTreeMap<_, _> = snapshot.not_in_v2().into_iter().collect();
        if !reasons.is_empty() {
            not_served.insert(name.to_string(), json!(reasons));
        }
    }
    json!({
        "source": name,
        "collections": collections,
        // What files with faults held before is served.
        "faults": source.faults().iter().map(ToString::to_string).collect::<Vec<_>>(),
        "sinks": source.sinks(),
        // Version 2 of Envoy's API, and the resources that it cannot hold with the reasons.
        "v2": { "requests": SOURCE.v2_requests(), "not_served": not_served },
    })
}
