//! The admin port: HTTP for people and machines. No page but `/explain` and `/decisions` shows values of a configuration or of
//! requests, which may hold secrets.

mod activity;
mod history;
mod problems;
mod status;

use std::{future, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::{Body, HttpBody as _},
    extract::{RawQuery, Request, State},
    http::{
        HeaderMap, StatusCode,
        header::{AUTHORIZATION, CONNECTION, HOST, WWW_AUTHENTICATE},
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::{StreamExt as _, future::join_all};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore, SemaphorePermit},
    time::{MissedTickBehavior, timeout},
};
use tokio_util::sync::CancellationToken;

pub(super) use activity::{Activity, FailureCounters};
#[cfg(feature = "envoy")]
pub(super) use problems::Kind as ProblemKind;

use super::{Readiness, exposition, page};
use mixer_adapter_config::source::SourceStatus;
use mixer_adapter_core::framework::is_this_machine;
use mixer_adapter_engine::{ConfigStatus, Mixer, NamespaceCaching};
use mixer_adapter_host::Host;
use mixer_adapter_net::{
    Connection, ConnectionLimits, LimitHits, Listener, Protocol, Tokens, Workers, max_open_files, tls,
};
use status::Status;

/// The number of sessions that `/sessions` lists.
const SESSIONS_LISTED: usize = 1_000;

/// The number of namespaces for which `/config` shows whether checks are cached.
const NAMESPACES_LISTED: usize = 100;

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
    /// How often the limits of the server were hit.
    pub(super) hits: Arc<LimitHits>,
    /// Further counters of failures.
    pub(super) failure_counters: Arc<[FailureCounters]>,
    pub(super) activity: Arc<Mutex<Activity>>,
}

impl Admin {
    /// Returns the state of the configuration, with changed values where requests are explained.
    fn config_status(&self) -> Option<ConfigStatus> {
        let mut status = self.config.as_ref()?.lock().clone();
        if !self.explain {
            status.changes.iter_mut().for_each(|change| change.fields.clear());
        }
        Some(status)
    }

    /// Observes the server once a second, until this is dropped.
    pub(super) async fn observe(self) {
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            seconds.tick().await;
            self.activity.lock().observe(&self);
        }
    }
}

/// Who may use the admin port.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AdminSecurity {
    /// TLS; without it the port is plain HTTP.
    pub tls: Option<Arc<tls::Server>>,
    /// The tokens of clients; without them every client may use the port.
    pub tokens: Option<Arc<Tokens>>,
}

/// Returns the router of the admin port; `private` has the pages that show values. With `tokens`, all pages but those
/// of probes and Prometheus need a token.
pub(super) fn router(
    admin: Admin,
    registry: Registry,
    private: Router,
    tokens: Option<Arc<Tokens>>,
) -> Router {
    let vitals = vitals(admin.readiness.clone(), registry, Some(admin.host.clone()));
    let pages = Router::new()
        .route("/", get(|| async { page::SERVER.response() }))
        .route("/status", get(status))
        .route("/sessions", get(sessions))
        .route("/config", get(config))
        .with_state(admin)
        .merge(private);
    let pages = match tokens {
        Some(tokens) => pages.layer(middleware::from_fn_with_state(tokens, authenticate)),
        None => pages,
    };
    pages.merge(vitals)
}

/// Refuses requests without a valid token. A browser sends the token for pages of other sites, too: their requests are refused.
async fn authenticate(State(tokens): State<Arc<Tokens>>, request: Request, next: Next) -> Response {
    if is_of_other_site(request.headers()) {
        return (StatusCode::FORBIDDEN, "requests of other sites are refused\n").into_response();
    }
    if token(request.headers()).and_then(|token| tokens.name_of(&token)).is_some() {
        return next.run(request).await;
    }
    let challenge = [(WWW_AUTHENTICATE, "Basic realm=\"mixer-adapter: any user, a token as the password\"")];
    (StatusCode::UNAUTHORIZED, challenge, "the client has to show a valid token\n").into_response()
}

/// Returns the bearer token, or the password that a browser sends.
fn token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let (scheme, credentials) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(credentials.trim().into());
    }
    let decoded = BASE64_STANDARD.decode(credentials.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    scheme.eq_ignore_ascii_case("basic").then(|| decoded[colon + 1..].to_vec())
}

/// Returns whether a page of another site makes a request through a browser.
fn is_of_other_site(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site")
}

/// The pages of every process: `/healthz`, `/readyz` and `/metrics`, with the metrics of the handlers of `host`.
pub(crate) fn vitals(readiness: Readiness, registry: Registry, host: Option<Arc<Host>>) -> Router {
    let metrics_page = Arc::new(AsyncMutex::new((registry, host)));
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(exposition::metrics).with_state(metrics_page))
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
    long_answers: true,
};

/// The maximum size of the body of a request in bytes.
const MAX_BODY: usize = 64 << 10;

/// The maximum size of the bodies of all requests in progress in bytes.
const MAX_BODIES: usize = 4 << 20;

/// How long the body of a request may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves the admin port on the current runtime until `stop` is cancelled.
pub(crate) async fn serve(listener: Listener, router: Router, stop: CancellationToken) {
    let router = router.fallback(not_found).layer(middleware::from_fn_with_state(bodies(), receive_body));
    let router = if listener.address().is_ok_and(|address| address.is_local()) {
        router.layer(middleware::from_fn(check_origin))
    } else {
        router
    };
    let max_connections = LIMITS.max_connections.min(max_open_files() / 16);
    serve_within(ConnectionLimits { max_connections, ..LIMITS }, listener, router, stop).await;
}

async fn serve_within(limits: ConnectionLimits, listener: Listener, router: Router, stop: CancellationToken) {
    listener
        .serve(
            limits,
            &Workers::here(),
            move |connection: &Connection| {
                let connection = connection.clone();
                router.clone().layer(middleware::map_response(move |response: Response| {
                    future::ready(response.map(|body| Body::new(connection.until_written(body))))
                }))
            },
            stop,
        )
        .await;
}

/// Returns the memory for the bodies of requests, a permit for each byte.
fn bodies() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_BODIES))
}

async fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "there is nothing at this path; / is a page that shows the rest\n")
        .into_response()
}

/// Receives the body of a request before the request is answered, within limits.
async fn receive_body(State(memory): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match timeout(BODY_TIMEOUT, received(body, &memory)).await {
        Ok(Ok((body, _memory))) => next.run(Request::from_parts(head, body)).await,
        Ok(Err(refused)) => refused,
        Err(_) => {
            let reason = format!("the body did not arrive within {} s\n", BODY_TIMEOUT.as_secs());
            (StatusCode::REQUEST_TIMEOUT, [(CONNECTION, "close")], reason).into_response()
        }
    }
}

/// Receives a body, and takes memory for the bytes that have arrived. Its parts are copied, because each part would hold the whole
/// read buffer.
async fn received(body: Body, memory: &Semaphore) -> Result<(Body, SemaphorePermit<'_>), Response> {
    let too_long = || {
        let reason = format!("the body of a request has at most {MAX_BODY} bytes\n");
        (StatusCode::PAYLOAD_TOO_LARGE, reason).into_response()
    };
    let take = |bytes| {
        let bytes = u32::try_from(bytes).map_err(|_| too_long())?;
        memory.try_acquire_many(bytes).map_err(|_| {
            let reason = format!("the bodies of all requests have at most {MAX_BODIES} bytes; try again\n");
            (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
        })
    };
    let mut taken = take(0)?;
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_long());
    }
    let mut parts = body.into_data_stream();
    let mut whole = Vec::new();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|_| StatusCode::BAD_REQUEST.into_response())?;
        if part.len() > MAX_BODY - whole.len() {
            return Err(too_long());
        }
        taken.merge(take(part.len())?);
        whole.extend_from_slice(&part);
    }
    Ok((whole.into(), taken))
}

/// Refuses requests that a page of another site makes through a browser on this machine: a loopback port trusts its clients.
async fn check_origin(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = headers.get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()));
    match host {
        _ if is_of_other_site(headers) => {
            (StatusCode::FORBIDDEN, "requests of other sites are refused\n").into_response()
        }
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
    is_this_machine(name)
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let pending = readiness.pending();
    let (code, mut text) = if pending.is_empty() {
        (StatusCode::OK, "ready\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}\n", pending.join(", ")))
    };
    for warning in readiness.warnings() {
        text += &format!("warning: {warning}\n");
    }
    (code, text)
}

#[derive(serde::Serialize)]
struct Config {
    #[serde(flatten)]
    status: ConfigStatus,
    sources: Vec<SourceStatus>,
    /// Whether the checks of each namespace are cached; empty without a cache.
    check_cache: Vec<NamespaceCaching>,
}

/// The configuration in use and its sources, and why the last one was refused, without its values.
async fn config(State(admin): State<Admin>) -> Json<Option<Config>> {
    let Some(config) = &admin.config else { return Json(None) };
    let watched = config.lock().sources.clone();
    let sources = join_all(watched.iter().map(|watched| watched.status())).await;
    let Some(status) = admin.config_status() else { return Json(None) };
    let snapshot = admin.mixer.as_ref().and_then(|mixer| mixer.snapshot());
    let snapshot = snapshot.filter(|snapshot| snapshot.has_cache());
    let check_cache =
        snapshot.map(|snapshot| snapshot.cached_namespaces(NAMESPACES_LISTED)).unwrap_or_default();
    Json(Some(Config { status, sources: sources.into_iter().flatten().collect(), check_cache }))
}

/// The state of the server; `?brief` omits its resources.
async fn status(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Json<Status> {
    Json(Status::new(&admin, query.as_deref() == Some("brief")))
}

async fn sessions(State(admin): State<Admin>) -> Json<serde_json::Value> {
    let store = admin.host.sessions();
    let total: usize = store.counts().iter().map(|(_, count)| count).sum();
    Json(json!({ "total": total, "sessions": store.list(SESSIONS_LISTED) }))
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
        posted_within(bodies(), body).await
    }

    async fn posted_within(memory: Arc<Semaphore>, body: Body) -> (StatusCode, usize) {
        let router = Router::new().route("/", axum::routing::post(|body: Bytes| async { body }));
        let request = Request::post("/").body(body).unwrap();
        let response =
            router.layer(middleware::from_fn_with_state(memory, receive_body)).call(request).await.unwrap();
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
    async fn the_bodies_of_all_requests_are_limited_together_until_they_are_answered() {
        let memory = Arc::new(Semaphore::new(10));
        let unfinished = Body::from_stream(parts(8).chain(stream::pending()));
        let posting = tokio::spawn(posted_within(memory.clone(), unfinished));
        while memory.available_permits() > 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(posted_within(memory.clone(), Body::from("aaa")).await.0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(posted_within(memory.clone(), Body::from("aa")).await, (StatusCode::OK, 2));
        posting.abort();
        assert!(posting.await.is_err());
        assert_eq!(memory.available_permits(), 10);
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
