//! `call --session`: the steps around the calls.

use std::{
    process::Stdio,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use crate::support::{
    Server, call, eventually,
    recorder::{Answer, Recorder},
    run,
};
use mixer_adapter::{
    prost::Message as _,
    proto::{Any, Status},
    template::metric,
    value::ValueType,
};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::{
    CloseSessionRequest, CreateSessionRequest, CreateSessionResponse, ValidateRequest, ValidateResponse,
};
use serde_json::json;

/// Somebody else's server whose sessions are called `s-1`.
fn with_sessions(handle: impl Fn() -> Answer + Clone + Send + 'static) -> Recorder {
    Recorder::start(move |path| match path.rsplit('/').next() {
        Some("Validate") => Ok(ValidateResponse { status: Some(Status::default()) }.encode_to_vec()),
        Some("CreateSession") => {
            Ok(CreateSessionResponse { session_id: "s-1".to_owned(), status: None }.encode_to_vec())
        }
        Some("CloseSession") => Ok(Vec::new()),
        _ => handle(),
    })
}

#[test]
fn a_session_is_opened_used_and_closed() {
    let server = Server::start(&[]);
    let config = r#"{"status": {"code": 16}}"#;
    let instance = r#"{"name": "i.instance.ns", "value": 5}"#;
    let arguments = ["listentry", "--adapter", "denier", "--config", config, "--instance", instance];
    let ran = server.call(&[&arguments[..], &["--session", "--json"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.json()["answer"]["status"]["code"], "UNAUTHENTICATED");
    let steps: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(steps[0], "i.instance.ns: listentry.Type {\"value\":\"INT64\"}");
    assert_eq!(steps[1], "Validate: OK");
    assert!(steps[2].starts_with("CreateSession: OK, session "), "{}", steps[2]);
    assert_eq!(steps[3], "CloseSession: OK");
    let left = server.get("/sessions");
    assert!(!left.contains("i.instance.ns"), "{left}");
}

#[test]
fn a_session_that_is_refused_fails_at_the_step_that_refused_it() {
    let server = Server::start(&[]);
    let arguments =
        ["checknothing", "--adapter", "denier", "--config", r#"{"valid_duration": "-1s"}"#, "--session"];
    let ran = server.call(&arguments);
    assert_eq!(ran.code, 1);
    let error = ran.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
    assert!(
        error.starts_with("error: Validate: INVALID_ARGUMENT: ") && error.contains("valid_duration"),
        "{error}"
    );
    let ran = server.call(&[&arguments[..], &["--json"]].concat());
    assert_eq!((ran.code, &ran.json()["error"]["step"]), (1, &json!("Validate")));
}

#[test]
fn a_session_is_made_as_mixers_session_client_makes_it() {
    let other = with_sessions(|| Ok(Vec::new()));
    let instance = r#"{"name": "m", "value": 1.5, "dimensions": {"user": "u"}}"#;
    let ran = call(&other.address, &["metric", "--instance", instance, "--adapter", "denier", "--session"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let calls = other.calls();
    let methods = calls.iter().map(|call| call.path.rsplit('/').next().unwrap()).collect::<Vec<_>>();
    assert_eq!(methods, ["Validate", "CreateSession", "HandleMetric", "CloseSession"]);
    assert!(calls.iter().all(|call| call.connection == calls[0].connection), "one connection");

    let validate = ValidateRequest::decode(calls[0].message.clone()).unwrap();
    let create = CreateSessionRequest::decode(calls[1].message.clone()).unwrap();
    assert_eq!(
        (&validate.adapter_config, &validate.inferred_types),
        (&create.adapter_config, &create.inferred_types)
    );
    let inferred = &create.inferred_types["m"];
    assert_eq!(inferred.type_url, "metric.Type");
    let inferred = metric::Type::decode(inferred.value.clone()).unwrap();
    assert_eq!(inferred.value(), ValueType::Double);
    assert_eq!(inferred.dimensions, [("user".to_owned(), ValueType::String as i32)].into());

    let request = metric::HandleMetricRequest::decode(calls[2].message.clone()).unwrap();
    let session = Any { type_url: "google.protobuf.Any.type_url".to_owned(), value: "s-1".into() };
    assert_eq!(request.adapter_config, Some(session));
    assert_eq!(CloseSessionRequest::decode(calls[3].message.clone()).unwrap().session_id, "s-1");
}

#[test]
fn invalid_answers_of_session_calls_are_errors_of_their_step() {
    let other = Recorder::start(|_| Ok(Vec::new()));
    let ran = call(&other.address, &["checknothing", "--session"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("error: Validate: INTERNAL: the answer has no status"), "{}", ran.stderr);
    let other = Recorder::start(|path| {
        if path.ends_with("Validate") {
            Ok(ValidateResponse { status: Some(Status::default()) }.encode_to_vec())
        } else {
            Ok(Vec::new())
        }
    });
    let ran = call(&other.address, &["checknothing", "--session"]);
    assert!(ran.stderr.contains("error: CreateSession: INTERNAL: "), "{}", ran.stderr);
}

#[test]
fn a_session_is_closed_also_when_the_call_fails() {
    let other = with_sessions(|| Err((14, "overloaded")));
    let ran = call(&other.address, &["checknothing", "--session"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.ends_with("CloseSession: OK\nerror: UNAVAILABLE: overloaded\n"), "{}", ran.stderr);
}

#[test]
fn a_session_is_closed_also_when_the_call_is_interrupted() {
    let (answer, gate) = mpsc::sync_channel(1);
    let gate = Arc::new(Mutex::new(gate));
    let other = with_sessions(move || {
        gate.lock().unwrap().recv_timeout(Duration::from_secs(60)).unwrap();
        Ok(Vec::new())
    });
    let mut command = crate::support::binary();
    command.args(["call", "checknothing", "--session", "--address", &other.address]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let called = || other.calls().iter().any(|call| call.path.ends_with("/HandleCheckNothing"));
    eventually("the adapter is called", || called().then_some(()));
    crate::support::signal(child.id(), "INT");
    let ran = crate::support::Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.ends_with("CloseSession: OK\nerror: CANCELLED: interrupted\n"), "{}", ran.stderr);
    answer.send(()).unwrap();
}

#[test]
fn instances_of_one_name_and_several_types_are_refused() {
    let instances = ["--instance", r#"{"value": 1}"#, "--instance", r#"{"value": 2.5}"#, "--session"];
    let ran = run(&[&["call", "metric"], &instances[..]].concat());
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("`metric.instance.istio-system` have values of different types"),
        "{}",
        ran.stderr
    );
}
