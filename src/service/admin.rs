//! The admin port: plain HTTP for people and machines. No page but `/explain` and `/decisions` shows values of a configuration or of
//! requests, which may hold secrets.

use std::{
    future,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, HttpBody as _},
    extract::{Request, State},
    http::{
        HeaderMap, StatusCode,
        header::{CONNECTION, CONTENT_TYPE, HOST},
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use futures_util::{StreamExt as _, future::join_all};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{sync::Mutex as AsyncMutex, task::spawn_blocking, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::{Readiness, exposition::Format, page};
use mixer_adapter_config::source::SourceStatus;
use mixer_adapter_engine::{ConfigStatus, InstanceCounts, Mixer, QuotaCounts, RuleCounts, Snapshot};
use mixer_adapter_host::{
    Host,
    metrics::{CallMetrics, Latency},
    session::SessionSummary,
};
use mixer_adapter_net::{Connection, ConnectionLimits, Listener, Protocol, Workers, max_open_files};

/// The number of sessions that `/sessions` lists.
const SESSIONS_LISTED: usize = 1_000;

/// The state that the admin port shows.
#[derive(Clone)]
pub(super) struct Admin {
    pub(super) host: Arc<Host>,
    pub(super) readiness: Readiness,
    pub(super) config: Option<Arc<Mutex<ConfigStatus>>>,
    pub(super) mixer: Option<Arc<Mixer>>,
    /// When the server started, in seconds since the Unix epoch.
    pub(super) started: u64,
    /// Whether `/explain` and `/decisions` answer.
    pub(super) explain: bool,
}

/// Returns the router of the admin port; `private` has the pages that show values.
pub(super) fn router(admin: Admin, registry: Registry, private: Router) -> Router {
    let vitals = vitals(admin.readiness.clone(), registry);
    Router::new()
        .route("/", get(|| async { page::SERVER.response() }))
        .route("/status", get(status))
        .route("/sessions", get(sessions))
        .route("/config", get(config))
        .with_state(admin)
        .merge(vitals)
        .merge(private)
}

/// The pages of every process: `/healthz`, `/readyz` and `/metrics`.
pub(crate) fn vitals(readiness: Readiness, registry: Registry) -> Router {
    let registry = Arc::new(AsyncMutex::new(registry));
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

/// The maximum size of the body of a request in bytes.
const MAX_BODY: usize = 64 << 10;

/// How long the body of a request may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves the admin port on the current runtime until `stop` is cancelled.
pub(crate) async fn serve(listener: Listener, router: Router, stop: CancellationToken) {
    let router = router.layer(middleware::from_fn(receive_body));
    let router = match listener.address().is_ok_and(|address| address.is_local()) {
        true => router.layer(middleware::from_fn(check_origin)),
        false => router,
    };
    let max_connections = LIMITS.max_connections.min(max_open_files() / 16);
    serve_within(ConnectionLimits { max_connections, ..LIMITS }, listener, router, stop).await;
}

async fn serve_within(limits: ConnectionLimits, listener: Listener, router: Router, stop: CancellationToken) {
    let on_connection = move |connection: &Connection| {
        let connection = connection.clone();
        let counted = move |response: Response| {
            future::ready(response.map(|body| Body::new(connection.until_written(body))))
        };
        router.clone().layer(middleware::map_response(counted))
    };
    listener.serve(limits, &Workers::here(), on_connection, stop).await;
}

/// Receives the body of a request before the request is answered, within limits.
async fn receive_body(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match timeout(BODY_TIMEOUT, received(body)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(head, body)).await,
        Ok(Err(ReceiveError::TooLong)) => {
            let reason = format!("the body of a request has at most {MAX_BODY} bytes\n");
            (StatusCode::PAYLOAD_TOO_LARGE, reason).into_response()
        }
        Ok(Err(ReceiveError::Ended)) => StatusCode::BAD_REQUEST.into_response(),
        Err(_) => {
            let reason = format!("the body did not arrive within {} s\n", BODY_TIMEOUT.as_secs());
            (StatusCode::REQUEST_TIMEOUT, [(CONNECTION, "close")], reason).into_response()
        }
    }
}

/// The reason that a body was not received.
#[derive(Debug)]
enum ReceiveError {
    TooLong,
    Ended,
}

/// Receives a body. Its parts are copied: each would hold the memory of what arrived with it.
async fn received(body: Body) -> Result<Body, ReceiveError> {
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(ReceiveError::TooLong);
    }
    let mut parts = body.into_data_stream();
    let mut whole = Vec::new();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|_| ReceiveError::Ended)?;
        if part.len() > MAX_BODY - whole.len() {
            return Err(ReceiveError::TooLong);
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.into())
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

/// The metrics, in the format that the client accepts. One request is answered at a time, on a thread that may block: files of the
/// system are read.
async fn metrics(State(registry): State<Arc<AsyncMutex<Registry>>>, headers: HeaderMap) -> Response {
    let registry = registry.lock_owned().await;
    let encoded = spawn_blocking(move || {
        let mut text = String::new();
        encode(&mut text, &registry).map(|()| text)
    });
    match encoded.await {
        Ok(Ok(text)) => {
            let format = Format::accepted(&headers);
            ([(CONTENT_TYPE, format.content_type())], format.convert(text)).into_response()
        }
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
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

/// What the program does, for its page and for other programs.
#[derive(serde::Serialize)]
struct Status {
    version: &'static str,
    /// When the server started, in seconds since the Unix epoch.
    started: u64,
    /// What the server waits for before it is ready.
    pending: Vec<String>,
    warnings: Vec<String>,
    /// Whether `/explain` and `/decisions` answer.
    explain: bool,
    adapters: Vec<AdapterStatus>,
    handlers: Handlers,
    /// The configuration in use; `null` before the first one, and without an engine.
    in_use: Option<InUse>,
    /// The check cache; `null` if it was not used.
    cache: Option<CacheStatus>,
}

#[derive(serde::Serialize)]
struct AdapterStatus {
    name: &'static str,
    description: &'static str,
    templates: Vec<&'static str>,
    sessions: usize,
}

#[derive(serde::Serialize)]
struct Handlers {
    open: usize,
    /// Of the open ones, those that are cached for calls that carry their configuration.
    cached: usize,
}

/// The resources of the configuration in use and their counters since they were first in use. Resources beyond those with
/// counters of their own are together one, `other`.
#[derive(serde::Serialize)]
struct InUse {
    /// Number of rules with an effect.
    rule_count: usize,
    /// Number of handlers that these rules use.
    handler_count: usize,
    rules: Vec<RuleStatus>,
    handlers: Vec<HandlerStatus>,
    instances: Vec<InstanceStatus>,
    /// The quotas among the instances that were requested.
    quotas: Vec<QuotaStatus>,
}

#[derive(serde::Serialize)]
struct RuleStatus {
    name: String,
    /// A file and a line, or the address of a server.
    place: Option<String>,
    matched: u64,
    denied: u64,
    /// Evaluations in which the condition could not be evaluated.
    failed: u64,
    /// The mean duration of the calls of handlers for the rule, without those of reports; `null` if there was none.
    mean_micros: Option<u64>,
}

#[derive(serde::Serialize)]
struct HandlerStatus {
    name: String,
    calls: u64,
    /// Of the calls, those that failed.
    failed: u64,
    /// The mean duration of a call; `null` if there was none.
    mean_micros: Option<u64>,
}

#[derive(serde::Serialize)]
struct InstanceStatus {
    name: String,
    built: u64,
    /// Times that it could not be built.
    failed: u64,
}

#[derive(serde::Serialize)]
struct QuotaStatus {
    name: String,
    requests: u64,
    /// Of the requests, those that were granted less than the amount.
    refused: u64,
    requested: u64,
    granted: u64,
    returned: u64,
    /// The state of the limit in the last answer that has one, for one combination of dimensions.
    last_limit: Option<LimitStatus>,
}

#[derive(serde::Serialize)]
struct LimitStatus {
    max_amount: i64,
    remaining: i64,
    window_seconds: Option<i64>,
    seconds_ago: u64,
}

impl QuotaStatus {
    /// Returns `None` for an instance that is not a quota, or that was not requested.
    fn of(name: &str, counts: &QuotaCounts) -> Option<Self> {
        let [requests, refused, requested, granted, returned] =
            [&counts.requests, &counts.refused, &counts.requested, &counts.granted, &counts.returned]
                .map(|count| count.load(Relaxed));
        let last_limit = counts.last_limit().map(|last| LimitStatus {
            max_amount: last.limit.max_amount,
            remaining: last.limit.remaining,
            window_seconds: last.limit.window.map(|window| window.seconds),
            seconds_ago: last.at.elapsed().as_secs(),
        });
        let is_used = requests + returned > 0 || last_limit.is_some();
        let name = name.to_owned();
        is_used.then_some(Self { name, requests, refused, requested, granted, returned, last_limit })
    }
}

/// Returns the mean of durations in microseconds.
fn mean_micros(latency: &Latency) -> Option<u64> {
    latency.mean().map(|mean| u64::try_from(mean.as_micros()).unwrap_or(u64::MAX))
}

impl InUse {
    fn of(snapshot: &Snapshot) -> Self {
        let size = snapshot.size();
        let counts = snapshot.resource_counts();
        let instances = counts.instances();
        let rule = |(name, counts): (Arc<str>, Arc<RuleCounts>)| RuleStatus {
            place: snapshot.place(&name).map(str::to_owned),
            matched: counts.matched.load(Relaxed),
            denied: counts.denied.load(Relaxed),
            failed: counts.failed.load(Relaxed),
            mean_micros: mean_micros(&counts.latency),
            name: name.to_string(),
        };
        let handler = |(name, calls): (Arc<str>, Arc<CallMetrics>)| {
            let all = calls.codes().map(|(_, count)| count).sum();
            HandlerStatus {
                name: name.to_string(),
                calls: all,
                failed: all - calls.count(Code::Ok),
                mean_micros: mean_micros(calls.latency()),
            }
        };
        let instance = |(name, counts): (Arc<str>, Arc<InstanceCounts>)| InstanceStatus {
            name: name.to_string(),
            built: counts.built.load(Relaxed),
            failed: counts.failed.load(Relaxed),
        };
        Self {
            rule_count: size.rules,
            handler_count: size.handlers,
            rules: counts.rules().into_iter().map(rule).collect(),
            handlers: counts.handlers().into_iter().map(handler).collect(),
            quotas: instances
                .iter()
                .filter_map(|(name, counts)| QuotaStatus::of(name, &counts.quota))
                .collect(),
            instances: instances.into_iter().map(instance).collect(),
        }
    }
}

#[derive(serde::Serialize)]
struct CacheStatus {
    hits: u64,
    misses: u64,
    coalesced: u64,
    stale: u64,
    saved_calls: u64,
    saved_seconds: f64,
    answers: usize,
    bytes: usize,
    evictions: u64,
}

impl CacheStatus {
    /// `None` if the cache was not used.
    fn of(snapshot: &Snapshot) -> Option<Self> {
        let counts = snapshot.cache_counts();
        // In the order of CacheOutcome.
        let [hits, misses, coalesced, stale] = counts.requests.each_ref().map(|count| count.load(Relaxed));
        if hits + misses + coalesced + stale == 0 {
            return None;
        }
        let size = snapshot.cache_size();
        Some(Self {
            hits,
            misses,
            coalesced,
            stale,
            saved_calls: counts.saved_calls.load(Relaxed),
            saved_seconds: counts.saved_time().as_secs_f64(),
            answers: size.answers,
            bytes: size.bytes,
            evictions: counts.evictions.load(Relaxed),
        })
    }
}

async fn status(State(admin): State<Admin>) -> Json<Status> {
    let Admin { host, readiness, mixer, started, explain, .. } = admin;
    let counts = host.sessions().counts();
    let sessions =
        |name: &str| counts.iter().find(|(adapter, _)| *adapter == name).map_or(0, |(_, count)| *count);
    let adapters = host.adapters().iter().map(|adapter| AdapterStatus {
        name: adapter.name,
        description: adapter.description,
        templates: adapter.templates.iter().map(|template| template.name).collect(),
        sessions: sessions(adapter.name),
    });
    let snapshot = mixer.and_then(|mixer| mixer.snapshot());
    Json(Status {
        version: env!("CARGO_PKG_VERSION"),
        started,
        pending: readiness.pending(),
        warnings: readiness.warnings(),
        explain,
        adapters: adapters.collect(),
        handlers: Handlers { open: host.handlers().live_count(), cached: host.handlers().cached_count() },
        in_use: snapshot.as_deref().map(InUse::of),
        cache: snapshot.as_deref().and_then(CacheStatus::of),
    })
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use axum::body::Bytes;
    use futures_util::stream;
    use tokio::{
        io::AsyncWriteExt as _,
        net::{TcpListener, TcpStream},
    };
    use tokio_util::sync::DropGuard;
    use tower_service::Service as _;

    use super::*;

    /// The status of the response to a request with a body, and how much of it was received.
    async fn posted(body: Body) -> (StatusCode, usize) {
        let router = Router::new().route("/", axum::routing::post(|body: Bytes| async { body }));
        let request = Request::post("/").body(body).unwrap();
        let response = router.layer(middleware::from_fn(receive_body)).call(request).await.unwrap();
        let status = response.status();
        (status, axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap().len())
    }

    fn parts(length: usize) -> impl stream::Stream<Item = Result<Bytes, std::io::Error>> + Send {
        stream::iter((0..length).map(|_| Ok(Bytes::from_static(b" "))))
    }

    #[tokio::test]
    async fn bodies_are_limited_in_size_with_and_without_a_length() {
        assert_eq!(posted(Body::from(vec![b' '; MAX_BODY])).await, (StatusCode::OK, MAX_BODY));
        assert_eq!(posted(Body::from_stream(parts(MAX_BODY))).await, (StatusCode::OK, MAX_BODY));
        assert_eq!(posted(Body::from(vec![b' '; MAX_BODY + 1])).await.0, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(posted(Body::from_stream(parts(MAX_BODY + 1))).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let dropped = CancellationToken::new();
        let guard = dropped.clone();
        let router = Router::new().route(
            "/",
            get(move || async move {
                // More than sockets hold.
                struct Answer(Vec<u8>, #[expect(dead_code, reason = "dropped with it")] DropGuard);
                impl AsRef<[u8]> for Answer {
                    fn as_ref(&self) -> &[u8] {
                        &self.0
                    }
                }
                Bytes::from_owner(Answer(vec![b'a'; 32 << 20], guard.drop_guard()))
            }),
        );
        let limits = ConnectionLimits { write_timeout: Duration::from_millis(50), ..LIMITS };
        let stop = CancellationToken::new();
        tokio::spawn(serve_within(limits, listener.into(), router, stop));
        let mut unread = TcpStream::connect(address).await.unwrap();
        unread.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        timeout(Duration::from_secs(30), dropped.cancelled()).await.unwrap();
        drop(unread);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_end_is_refused_after_the_timeout() {
        let unfinished = Body::from_stream(parts(9).chain(stream::pending()));
        assert_eq!(posted(unfinished).await.0, StatusCode::REQUEST_TIMEOUT);
    }
}
