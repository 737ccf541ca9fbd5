#![allow(clippy::unwrap_used)]

mod cerbos;

use std::{
    collections::BTreeMap,
    future::pending,
    io::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use mixer_adapter::testing::{FakeHandler, FakeMixer};
use mixer_adapter_core::value::Value;
use mixer_adapter_templates::authorization::{ActionMsg, InstanceMsg, SubjectMsg};
use serde_json::{Value as JsonValue, json};
use tempfile::NamedTempFile;

use super::*;

mixer_adapter::testing::compliance!(
    AuthZen,
    config("url: http://127.0.0.1:9"),
    refuses("url", "{}"),
    refuses("url", "url: http://127.0.0.1:9/access/v1/evaluation"),
    refuses("url", "url: 'http://127.0.0.1:9/?a=b'"),
    refuses("timeout", "{url: 'http://127.0.0.1:9', timeout: 0s}"),
    refuses("caching_interval", "{url: 'http://127.0.0.1:9', caching_interval: 25h}")
);

const EVALUATION: &str = "/access/v1/evaluation";
const METADATA: &str = "/.well-known/authzen-configuration";

/// A request as the decision service has received it.
#[derive(Clone, Debug)]
struct Received {
    path: String,
    token: Option<String>,
    body: JsonValue,
}

/// A decision service with an answer for each path, which records its requests.
#[derive(Clone)]
struct Pdp {
    url: String,
    answers: Arc<Mutex<BTreeMap<&'static str, Answer>>>,
    received: Arc<Mutex<Vec<Received>>>,
}

#[derive(Clone)]
enum Answer {
    Status(u16, String),
    Never,
}

fn json_answer(body: &JsonValue) -> Answer {
    Answer::Status(200, body.to_string())
}

impl Pdp {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let pdp = Self { url, answers: Arc::default(), received: Arc::default() };
        let router = Router::new().fallback(Self::answer).with_state(pdp.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        pdp
    }

    async fn deciding(answer: JsonValue) -> Self {
        let pdp = Self::start().await;
        pdp.set(EVALUATION, json_answer(&answer));
        pdp
    }

    fn set(&self, path: &'static str, answer: Answer) {
        self.answers.lock().unwrap().insert(path, answer);
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    fn paths(&self) -> Vec<String> {
        self.received().into_iter().map(|received| received.path).collect()
    }

    async fn answer(State(pdp): State<Self>, url: Uri, headers: HeaderMap, body: Bytes) -> Response {
        let token = headers.get("authorization").map(|token| token.to_str().unwrap().to_owned());
        let body = serde_json::from_slice(&body).unwrap_or_default();
        pdp.received.lock().unwrap().push(Received { path: url.path().to_owned(), token, body });
        let answer = pdp.answers.lock().unwrap().get(url.path()).cloned();
        match answer {
            Some(Answer::Status(status, body)) => {
                (StatusCode::from_u16(status).unwrap(), body).into_response()
            }
            Some(Answer::Never) => pending().await,
            None => StatusCode::NOT_FOUND.into_response(),
        }
    }

    fn handler(&self, settings: &str) -> FakeHandler {
        FakeMixer::with::<AuthZen>().params(&*format!("{{url: '{}', {settings}}}", self.url))
    }
}

fn instance() -> InstanceMsg {
    InstanceMsg {
        subject: Some(SubjectMsg { user: "alice".into(), ..Default::default() }),
        action: Some(ActionMsg { method: "GET".into(), path: "/todos".into(), ..Default::default() }),
        ..Default::default()
    }
}

#[tokio::test]
async fn subject_action_resource_and_context_are_those_of_the_instance() {
    let pdp = Pdp::deciding(json!({ "decision": true })).await;
    let handler = pdp.handler("groups_property: cerbos.roles");
    handler.check::<Authorization>(instance()).await.expect_allowed();
    let properties = |pairs: &[(&str, Value)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    };
    let full = InstanceMsg {
        subject: Some(SubjectMsg {
            user: "alice".into(),
            groups: "admin, evil_genius,".into(),
            properties: properties(&[("type", "identity".into()), ("age", 42.into()), ("vip", true.into())]),
        }),
        action: Some(ActionMsg {
            namespace: "shop".into(),
            service: "todo".into(),
            method: "can_update_todo".into(),
            path: "/todos/7".into(),
            properties: properties(&[
                ("reason", "test".into()),
                ("resource.type", "todo".into()),
                ("resource.id", "7".into()),
                ("resource.ownerID", "morty".into()),
                ("context.load", 0.5.into()),
                ("context.ip", "10.0.0.1".parse::<std::net::IpAddr>().unwrap().into()),
            ]),
        }),
        ..Default::default()
    };
    handler.check::<Authorization>(full).await.expect_allowed();
    let bodies: Vec<JsonValue> = pdp.received().into_iter().map(|received| received.body).collect();
    let expected = [
        json!({
            "subject": { "type": "user", "id": "alice" },
            "action": { "name": "GET" },
            "resource": { "type": "route", "id": "/todos" },
        }),
        json!({
            "subject": {
                "type": "identity",
                "id": "alice",
                "properties": { "age": 42, "vip": true, "cerbos.roles": ["admin", "evil_genius"] },
            },
            "action": { "name": "can_update_todo", "properties": { "reason": "test" } },
            "resource": {
                "type": "todo",
                "id": "7",
                "properties": { "namespace": "shop", "service": "todo", "ownerID": "morty" },
            },
            "context": { "load": 0.5, "ip": "10.0.0.1" },
        }),
    ];
    assert_eq!(bodies, expected);
}

#[tokio::test]
async fn a_decision_is_used_once_unless_it_may_be_cached() {
    let pdp = Pdp::deciding(json!({ "decision": true })).await;
    let uncached = pdp.handler("");
    uncached.check::<Authorization>(instance()).await.expect_allowed().expect_valid(Duration::ZERO, -1);
    let cached = pdp.handler("caching_interval: 30s");
    let valid = (Duration::from_secs(30), i32::MAX);
    cached.check::<Authorization>(instance()).await.expect_allowed().expect_valid(valid.0, valid.1);
    pdp.set(EVALUATION, json_answer(&json!({ "decision": false, "context": { "reason": "not yours" } })));
    let denied = cached.check::<Authorization>(instance()).await;
    denied.expect_denied(Code::PermissionDenied, "not yours").expect_valid(valid.0, valid.1);
}

#[tokio::test]
async fn without_a_decision_the_request_is_denied() {
    let pdp = Pdp::start().await;
    let (denying, allowing) = (pdp.handler("timeout: 1s"), pdp.handler("timeout: 1s, on_error: ALLOW"));
    let rejected = [
        Answer::Status(400, r#"{"decision": true}"#.to_owned()),
        Answer::Status(401, String::new()),
        Answer::Status(302, r#"{"decision": true}"#.to_owned()),
        Answer::Status(200, String::new()),
        Answer::Status(200, "{}".to_owned()),
        Answer::Status(200, r#"{"decision": "true"}"#.to_owned()),
        Answer::Status(200, r#"{"decision": 1}"#.to_owned()),
        Answer::Status(200, r#"{"decision": true, "decision": false}"#.to_owned()),
        Answer::Status(200, format!(r#"{{"decision": true, "context": "{}"}}"#, "x".repeat(1 << 20))),
    ];
    for answer in rejected {
        pdp.set(EVALUATION, answer);
        let denied = denying.check::<Authorization>(instance()).await;
        denied.expect_denied(Code::Unavailable, "made no decision").expect_valid(Duration::ZERO, -1);
    }
    let outages = [
        Answer::Status(500, r#"{"decision": true}"#.to_owned()),
        Answer::Status(503, String::new()),
        Answer::Never,
    ];
    for answer in outages {
        pdp.set(EVALUATION, answer);
        denying.check::<Authorization>(instance()).await.expect_denied(Code::Unavailable, "made no decision");
        let allowed = allowing.check::<Authorization>(instance()).await;
        allowed.expect_allowed().expect_valid(Duration::ZERO, -1);
    }
}

#[tokio::test]
async fn only_an_outage_allows_if_so_configured() {
    let pdp = Pdp::start().await;
    let handler = pdp.handler("on_error: ALLOW");
    for (status, body) in [(400, r#"{"decision": true}"#), (401, ""), (200, "{}"), (404, "")] {
        pdp.set(EVALUATION, Answer::Status(status, body.to_owned()));
        handler.check::<Authorization>(instance()).await.expect_denied(Code::Unavailable, "made no decision");
    }
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let away = FakeMixer::with::<AuthZen>().params(&*format!("{{url: 'http://{closed}', on_error: ALLOW}}"));
    away.check::<Authorization>(instance()).await.expect_allowed();
    let away = FakeMixer::with::<AuthZen>().params(&*format!("{{url: 'http://{closed}'}}"));
    away.check::<Authorization>(instance()).await.expect_denied(Code::Unavailable, "made no decision");
}

#[tokio::test]
async fn the_token_is_that_of_the_file() {
    let pdp = Pdp::deciding(json!({ "decision": true })).await;
    let mut file = NamedTempFile::new().unwrap();
    writeln!(file, "s3cr3t").unwrap();
    let handler = pdp.handler(&format!("token_file: '{}'", file.path().display()));
    handler.check::<Authorization>(instance()).await.expect_allowed();
    assert_eq!(pdp.received()[0].token.as_deref(), Some("Bearer s3cr3t"));
}

fn metadata(pdp: &str, endpoint: &str) -> Answer {
    json_answer(&json!({ "policy_decision_point": pdp, "access_evaluation_endpoint": endpoint }))
}

#[tokio::test]
async fn the_metadata_names_the_endpoint_until_it_is_gone() {
    let pdp = Pdp::start().await;
    pdp.set(METADATA, metadata(&pdp.url, &format!("{}/v2/ask", pdp.url)));
    pdp.set("/v2/ask", json_answer(&json!({ "decision": true })));
    let handler = pdp.handler("discovery: true");
    for _ in 0..2 {
        handler.check::<Authorization>(instance()).await.expect_allowed();
    }
    assert_eq!(pdp.paths(), [METADATA, "/v2/ask", "/v2/ask"]);
    pdp.set(METADATA, metadata(&pdp.url, &format!("{}/v3/ask", pdp.url)));
    pdp.set("/v3/ask", json_answer(&json!({ "decision": true })));
    pdp.set("/v2/ask", Answer::Status(404, String::new()));
    handler.check::<Authorization>(instance()).await.expect_denied(Code::Unavailable, "made no decision");
    handler.check::<Authorization>(instance()).await.expect_allowed();
    assert_eq!(pdp.paths()[3..], ["/v2/ask", METADATA, "/v3/ask"]);
}

#[tokio::test]
async fn metadata_of_another_service_or_host_is_refused() {
    let (pdp, other) = (Pdp::start().await, Pdp::deciding(json!({ "decision": true })).await);
    let own = format!("{}{EVALUATION}", pdp.url);
    let theirs = format!("{}{EVALUATION}", other.url);
    pdp.set(EVALUATION, json_answer(&json!({ "decision": true })));
    let handler = pdp.handler("discovery: true, on_error: ALLOW");
    for (service, endpoint) in [(&other.url, &own), (&pdp.url, &theirs)] {
        pdp.set(METADATA, metadata(service, endpoint));
        handler.check::<Authorization>(instance()).await.expect_denied(Code::Unavailable, "made no decision");
    }
    assert_eq!((pdp.paths(), other.paths().len()), (vec![METADATA.to_owned(); 2], 0));
    pdp.set(METADATA, metadata(&pdp.url, &own));
    handler.check::<Authorization>(instance()).await.expect_allowed();
}
