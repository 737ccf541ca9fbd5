use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{Json, extract::State, routing::get};
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::service::{self, Readiness};
use mixer_adapter_config::stream::{
    metrics::McpMetrics,
    source::{ConfigServer, PeerStatus},
};
use mixer_adapter_net::Listener;

/// Serves the admin port of a source: its collections, and the versions that each sink has. Specs are not shown.
pub(super) async fn serve(
    listener: Listener,
    name: String,
    source: ConfigServer,
    readiness: Readiness,
    stop: CancellationToken,
) {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(McpMetrics));
    let registry = Arc::new(Mutex::new(registry));
    let config =
        get(
            |State((name, source)): State<(String, ConfigServer)>| async move { Json(status(name, &source)) },
        );
    let router = service::vitals(readiness, registry).route("/config", config.with_state((name, source)));
    service::serve_admin(listener, router, stop).await;
}

#[derive(Serialize)]
struct Status {
    source: String,
    collections: BTreeMap<String, Collection>,
    /// Faults of the configuration; faulty resources are not served.
    faults: Vec<String>,
    sinks: Vec<PeerStatus>,
}

#[derive(Serialize)]
struct Collection {
    version: String,
    resources: usize,
}

fn status(name: String, source: &ConfigServer) -> Status {
    let catalogue = source.catalogue();
    let collections = catalogue.collections().filter_map(|(name, snapshot)| {
        let snapshot = snapshot?;
        let (version, resources) = (snapshot.version().to_string(), snapshot.resources().len());
        Some((name.to_string(), Collection { version, resources }))
    });
    Status {
        source: name,
        collections: collections.collect(),
        faults: source.faults().iter().map(ToString::to_string).collect(),
        sinks: source.sinks(),
    }
}
