#![allow(clippy::unwrap_used)]

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
    refuses("url", "url: http://127.0.0.1:9/access/v1/evaluations"),
    refuses("url", "url: 'http://127.0.0.1:9/?a=b'"),
    refuses("ca_file", "{url: 'http://127.0.0.1:9', ca_file: config.proto}"),
    refuses("timeout", "{url: 'http://127.0.0.1:9', timeout: 0s}"),
    refuses("caching_interval", "{url: 'http://127.0.0.1:9', caching_interval: 25h}"),
    refuses(r#"upstream_headers["Host"]"#, "{url: 'http://127.0.0.1:9', upstream_headers: {Host: /host}}"),
    refuses(r#"client_headers["x-a"]"#, "{url: 'http://127.0.0.1:9', client_headers: {X-A: /a, x-a: /b}}"),
    refuses(r#"client_headers["te"]"#, "{url: 'http://127.0.0.1:9', client_headers: {te: /te}}"),
    refuses(r#"client_headers[":path"]"#, "{url: 'http://127.0.0.1:9', client_headers: {':path': /path}}"),
    refuses(r#"client_headers["x-a"]"#, "{url: 'http://127.0.0.1:9', client_headers: {x-a: a}}")
);

const EVALUATION: &str = "/access/v1/evaluation";
const EVALUATIONS: &str = "/access/v1/evaluations";
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

fn properties(pairs: &[(&str, Value)]) -> BTreeMap<String, Value> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

/// Asks for a todo, and with these properties of the action for others.
fn instance_with(pairs: &[(&str, &str)]) -> InstanceMsg {
    let pairs: Vec<(&str, Value)> = pairs.iter().map(|(name, value)| (*name, (*value).into())).collect();
    let mut instance = instance();
    instance.action.as_mut().unwrap().properties = properties(&pairs);
    instance
}

/// Asks for two todos.
fn two() -> InstanceMsg {
    instance_with(&[("evaluations.other.resource.id", "/todos/2")])
}

#[tokio::test]
async fn subject_action_resource_and_context_are_those_of_the_instance() {
    let pdp = Pdp::deciding(json!({ "decision": true })).await;
    let handler = pdp.handler("groups_property: cerbos.roles");
    handler.check::<Authorization>(instance()).await.expect_allowed();
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
async fn several_evaluations_of_an_instance_are_one_question() {
    let pdp = Pdp::start().await;
    pdp.set(EVALUATIONS, json_answer(&json!({ "evaluations": vec![json!({ "decision": true }); 3] })));
    let several = instance_with(&[
        ("context.ip", "10.0.0.1"),
        ("evaluations.project.action", "can_read"),
        ("evaluations.project.action.reason", "test"),
        ("evaluations.project.resource.id", "7"),
        ("evaluations.project.resource.ownerID", "morty"),
        ("evaluations.project.resource.type", "project"),
        ("evaluations.now.context.hour", "3"),
        ("resource.id", "1"),
    ]);
    let expected = json!({
        "subject": { "type": "user", "id": "alice" },
        "action": { "name": "GET" },
        "resource": { "type": "route", "id": "1" },
        "context": { "ip": "10.0.0.1" },
        "evaluations": [
            {},
            { "context": { "hour": "3" } },
            {
                "action": { "name": "can_read", "properties": { "reason": "test" } },
                "resource": { "type": "project", "id": "7", "properties": { "ownerID": "morty" } },
            },
        ],
    });
    pdp.handler("").check::<Authorization>(several.clone()).await.expect_allowed();
    assert_eq!(pdp.received()[0].body, expected);
    let handler = pdp.handler("evaluations_semantic: DENY_ON_FIRST_DENY");
    handler.check::<Authorization>(several).await.expect_allowed();
    let mut body = pdp.received()[1].body.clone();
    let options = body.as_object_mut().unwrap().remove("options");
    assert_eq!((options, body), (Some(json!({ "evaluations_semantic": "deny_on_first_deny" })), expected));
    // One evaluation has no options.
    pdp.set(EVALUATION, json_answer(&json!({ "decision": true })));
    handler.check::<Authorization>(instance()).await.expect_allowed();
    assert_eq!(pdp.received()[2].body["options"], JsonValue::Null);
    assert_eq!(pdp.paths(), [EVALUATIONS, EVALUATIONS, EVALUATION]);
}

#[tokio::test]
async fn a_request_is_allowed_if_all_its_evaluations_are() {
    let pdp = Pdp::start().await;
    let handler = pdp.handler("on_error: ALLOW");
    let decided = |decisions: &[bool]| {
        let decisions = decisions.iter().enumerate().map(|(index, decision)| {
            json!({ "decision": decision, "context": { "reason": format!("reason {index}") } })
        });
        json_answer(&json!({ "evaluations": decisions.collect::<Vec<_>>() }))
    };
    pdp.set(EVALUATIONS, decided(&[true, true]));
    handler.check::<Authorization>(two()).await.expect_allowed();
    for (decisions, reason) in [
        (&[false, true][..], "reason 0"),
        (&[true, false], "reason 1"),
        (&[false, false], "reason 0"),
        // The service has stopped at the first denial.
        (&[false], "reason 0"),
    ] {
        pdp.set(EVALUATIONS, decided(decisions));
        let denied = handler.check::<Authorization>(two()).await;
        denied.expect_denied(Code::PermissionDenied, reason);
    }
    for decisions in [&[][..], &[true], &[true, true, true], &[true, true, false]] {
        pdp.set(EVALUATIONS, decided(decisions));
        handler.check::<Authorization>(two()).await.expect_denied(Code::Unavailable, "made no decision");
    }
}

#[tokio::test]
async fn without_decisions_about_several_evaluations_the_request_is_denied() {
    let pdp = Pdp::start().await;
    let (denying, allowing) = (pdp.handler("timeout: 1s"), pdp.handler("timeout: 1s, on_error: ALLOW"));
    let allowed = r#"{"decision": true}"#;
    let rejected = [
        Answer::Status(400, format!(r#"{{"evaluations": [{allowed}, {allowed}]}}"#)),
        Answer::Status(200, String::new()),
        // The answer about one evaluation.
        Answer::Status(200, allowed.to_owned()),
        Answer::Status(200, r#"{"decision": true, "evaluations": null}"#.to_owned()),
        Answer::Status(200, format!(r#"{{"evaluations": [{allowed}, {{}}]}}"#)),
        Answer::Status(200, format!(r#"{{"evaluations": [{allowed}, {{"decision": "true"}}]}}"#)),
        Answer::Status(200, format!(r#"{{"evaluations": [{allowed}, null]}}"#)),
        Answer::Status(200, format!(r#"{{"evaluations": {{"0": {allowed}, "1": {allowed}}}}}"#)),
        Answer::Status(404, String::new()),
    ];
    for answer in rejected {
        pdp.set(EVALUATIONS, answer);
        for handler in [&denying, &allowing] {
            handler.check::<Authorization>(two()).await.expect_denied(Code::Unavailable, "made no decision");
        }
    }
    for answer in [Answer::Status(500, String::new()), Answer::Never] {
        pdp.set(EVALUATIONS, answer);
        denying.check::<Authorization>(two()).await.expect_denied(Code::Unavailable, "made no decision");
        allowing.check::<Authorization>(two()).await.expect_allowed();
    }
}

#[tokio::test]
async fn a_property_that_is_no_part_of_an_evaluation_is_denied_without_a_question() {
    let pdp = Pdp::start().await;
    let allowed = json!({ "decision": true, "evaluations": vec![json!({ "decision": true }); 2] });
    pdp.set(EVALUATION, json_answer(&allowed));
    pdp.set(EVALUATIONS, json_answer(&allowed));
    let handler = pdp.handler("on_error: ALLOW");
    for place in ["", "read", "read.", "read.resource", "read.subject.id", "read.name"] {
        let instance = instance_with(&[(&format!("evaluations.{place}"), "x")]);
        handler.check::<Authorization>(instance).await.expect_denied(Code::Unavailable, "made no decision");
    }
    assert_eq!(pdp.paths(), [""; 0]);
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
async fn an_evaluation_that_cannot_be_sent_is_not_an_outage() {
    let unsendable = Context::detached(()).http().get("http://a b/").send().await.unwrap_err();
    assert!(!EvaluationError::from(unsendable).is_outage());
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

fn metadata_with_evaluations(pdp: &str, endpoint: &str, several: &str) -> Answer {
    json_answer(&json!({
        "policy_decision_point": pdp,
        "access_evaluation_endpoint": endpoint,
        "access_evaluations_endpoint": several,
    }))
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

#[tokio::test]
async fn the_metadata_names_the_endpoint_for_several_evaluations() {
    let (pdp, other) = (Pdp::start().await, Pdp::start().await);
    let [one, several] = ["/v2/one", "/v2/several"].map(|path| format!("{}{path}", pdp.url));
    let allowed = json!({ "decision": true, "evaluations": vec![json!({ "decision": true }); 2] });
    for path in ["/v2/one", "/v2/several", EVALUATIONS] {
        pdp.set(path, json_answer(&allowed));
        other.set(path, json_answer(&allowed));
    }
    let theirs = format!("{}/v2/several", other.url);
    let none = metadata(&pdp.url, &one);
    for named in [none, metadata_with_evaluations(&pdp.url, &one, &theirs)] {
        pdp.set(METADATA, named);
        let handler = pdp.handler("discovery: true, on_error: ALLOW");
        for _ in 0..2 {
            let denied = handler.check::<Authorization>(two()).await;
            denied.expect_denied(Code::Unavailable, "made no decision");
        }
        handler.check::<Authorization>(instance()).await.expect_allowed();
    }
    pdp.set(METADATA, metadata_with_evaluations(&pdp.url, &one, &several));
    let handler = pdp.handler("discovery: true, on_error: ALLOW");
    for instance in [two(), two(), instance()] {
        handler.check::<Authorization>(instance).await.expect_allowed();
    }
    // The metadata are fetched once.
    let expected =
        [METADATA, "/v2/one", METADATA, "/v2/one", METADATA, "/v2/several", "/v2/several", "/v2/one"];
    assert_eq!((pdp.paths(), other.paths()), (expected.map(str::to_owned).to_vec(), vec![]));
}
