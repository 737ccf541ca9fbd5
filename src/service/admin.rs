//! The admin port: plain HTTP for people and machines. No page but `/explain` shows values of a configuration, which may hold secrets.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{
        StatusCode,
        header::{CONTENT_TYPE, HOST},
    },
    middleware::{self, Next},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use futures_util::future::join_all;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio_util::sync::CancellationToken;

use super::{Readiness, page};
use mixer_adapter_config::source::SourceStatus;
use mixer_adapter_engine::{ConfigStatus, Mixer};
use mixer_adapter_host::{Host, session::SessionSummary};
use mixer_adapter_net::{ConnectionLimits, Listener, Protocol, Workers};

/// The number of sessions that `/sessions` lists.
const SESSIONS_LISTED: usize = 1_000;

/// The state that the admin port shows.
#[derive(Clone)]
pub(super) struct Admin {
    pub(super) host: Arc<Host>,
    pub(super) readiness: Readiness,
    pub(super) registry: Arc<Mutex<Registry>>,
    pub(super) config: Option<Arc<Mutex<ConfigStatus>>>,
    pub(super) mixer: Option<Arc<Mixer>>,
}

pub(super) fn router(admin: Admin, explain: Router) -> Router {
    let vitals = vitals(admin.readiness.clone(), admin.registry.clone());
    Router::new()
        .route("/", get(front))
        .route("/sessions", get(sessions))
        .route("/config", get(config))
        .with_state(admin)
        .merge(vitals)
        .merge(explain)
}

/// The pages of every process: `/healthz`, `/readyz` and `/metrics`.
pub(crate) fn vitals(readiness: Readiness, registry: Arc<Mutex<Registry>>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(metrics).with_state(registry))
}

/// Limits of the admin port.
const LIMITS: ConnectionLimits = ConnectionLimits {
    protocol: Protocol::Http1 { header_timeout: Duration::from_secs(10) },
    max_connections: 1_000,
    max_connections_per_peer: None,
    handshake_timeout: Duration::from_secs(10),
    write_timeout: Duration::from_secs(30),
    max_age: None,
    grace: Duration::from_millis(200),
};

/// Serves the admin port on the current runtime until `stop` is cancelled.
pub(crate) async fn serve(listener: Listener, router: Router, stop: CancellationToken) {
    let router = match listener.address().is_ok_and(|address| address.is_local()) {
        true => router.layer(middleware::from_fn(check_origin)),
        false => router,
    };
    listener.serve(LIMITS, &Workers::here(), move |_| router.clone(), stop).await;
}

/// Refuses requests that a page of another site makes through a browser on this machine: a loopback port trusts its clients.
async fn check_origin(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let of_browser = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    let host = headers.get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()));
    match host {
        _ if of_browser => (StatusCode::FORBIDDEN, "requests of other sites are refused\n").into_response(),
        Some(host) if !is_local(&host) => {
            let reason = format!("{host:?} is not a name of this machine's loopback address\n");
            (StatusCode::FORBIDDEN, reason).into_response()
        }
        _ => next.run(request).await,
    }
}

/// Whether a Host header names the loopback address, with any port.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let pending = readiness.pending();
    let (code, mut text) = match pending.is_empty() {
        true => (StatusCode::OK, "ready\n".to_owned()),
        false => (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}\n", pending.join(", "))),
    };
    for warning in readiness.warnings() {
        text += &format!("warning: {warning}\n");
    }
    (code, text)
}

async fn metrics(State(registry): State<Arc<Mutex<Registry>>>) -> impl IntoResponse {
    let mut text = String::new();
    let registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
    match encode(&mut text, &registry) {
        Ok(()) => {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(CONTENT_TYPE, content_type)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[derive(serde::Serialize)]
struct Sessions {
    total: usize,
    sessions: Vec<SessionSummary>,
}

#[derive(serde::Serialize)]
struct Config {
    #[serde(flatten)]
    status: ConfigStatus,
    sources: Vec<SourceStatus>,
}

async fn front(State(admin): State<Admin>) -> Html<String> {
    let sources = sources(&admin).await;
    let snapshot = admin.mixer.as_ref().and_then(|mixer| mixer.snapshot());
    Html(page::render(&admin.host, &admin.readiness, snapshot.as_deref(), &sources))
}

/// The current status of the configuration sources.
async fn sources(admin: &Admin) -> Vec<SourceStatus> {
    let Some(status) = &admin.config else { return Vec::new() };
    let watched = status.lock().unwrap_or_else(PoisonError::into_inner).sources.clone();
    join_all(watched.iter().map(|watched| watched.status())).await.into_iter().flatten().collect()
}

/// The configuration in use and its sources, and why the last one was refused, without its values.
async fn config(State(admin): State<Admin>) -> Json<Option<Config>> {
    let sources = sources(&admin).await;
    let Some(status) = admin.config else { return Json(None) };
    let status = status.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Json(Some(Config { status, sources }))
}

async fn sessions(State(admin): State<Admin>) -> Json<Sessions> {
    let store = admin.host.sessions();
    let total = store.counts().iter().map(|(_, count)| count).sum();
    Json(Sessions { total, sessions: store.list(SESSIONS_LISTED) })
}
