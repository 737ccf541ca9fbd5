use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{Json, extract::State, routing::get};
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::service::{self, Readiness};
use mixer_adapter_config::mcp::{
    metrics::McpMetrics,
    source::{ConfigServer, PeerStatus},
};

/// The admin port of a source: what it serves, and who has what of it. Nothing of what the configuration says.
pub(super) async fn serve(
    listener: TcpListener,
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
    /// What is wrong with the configuration, and left out of what is served.
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
