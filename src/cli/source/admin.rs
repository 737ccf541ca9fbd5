use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State, routing::get};
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::service::{self, Families, Readiness, Scraped, page};
use mixer_adapter_net::{LimitHits, Listener};
use mixer_adapter_streams::stream::{
    metrics::{McpMetrics, SOURCE, V2Requests},
    source::{ConfigServer, PeerStatus},
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
    let config =
        get(
            |State((name, source)): State<(String, ConfigServer)>| async move { Json(status(name, &source)) },
        );
    let router = service::vitals(readiness, registry)
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
        let help = "Faults of the files that are served; what files with faults held before stays";
        families.gauge("mixer_adapter_source_faults", help, errors(&source).count())
    })));
    registry
}

/// The faults of the configuration, without warnings.
pub(super) fn errors(source: &ConfigServer) -> impl Iterator<Item = String> {
    let faults = source.faults();
    let errors: Vec<_> = faults.iter().filter(|fault| fault.is_error()).map(ToString::to_string).collect();
    errors.into_iter()
}

#[derive(Serialize)]
struct Status {
    source: String,
    collections: BTreeMap<String, Collection>,
    /// Faults of the configuration; what files with faults held before is served.
    faults: Vec<String>,
    sinks: Vec<PeerStatus>,
    /// Version 2 of Envoy's API.
    v2: OldApi,
}

#[derive(Serialize)]
struct OldApi {
    requests: Vec<V2Requests>,
    /// The resources that it cannot hold, by collection and name, and why.
    not_served: BTreeMap<String, BTreeMap<String, String>>,
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
    let not_served = catalogue.collections().filter_map(|(name, snapshot)| {
        let reasons = snapshot?.not_in_v2().into_iter();
        let reasons: BTreeMap<_, _> =
            reasons.map(|(resource, reason)| (resource.to_owned(), reason)).collect();
        (!reasons.is_empty()).then(|| (name.to_string(), reasons))
    });
    Status {
        source: name,
        collections: collections.collect(),
        faults: source.faults().iter().map(ToString::to_string).collect(),
        sinks: source.sinks(),
        v2: OldApi { requests: SOURCE.v2_requests(), not_served: not_served.collect() },
    }
}
