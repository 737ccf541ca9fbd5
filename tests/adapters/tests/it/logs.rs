//! The log of a server: failures with what is known of their calls, and events of authors in the span of their call.

use std::process::Command;

use mixer_adapter::{
    prost::Message as _,
    template::{ListEntry, Template as _, listentry, listentry::HandleListEntryRequest},
    tonic::Code,
    value::Value,
};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::CreateSessionRequest;
use serde_json::{Value as Json, json};
use test_adapters::probe::Params;

use crate::{
    program::{PROGRAM, Server},
    support::{Client, any, client::framed, post},
};

fn params(ledger: &str) -> Params {
    Params { ledger: ledger.to_owned(), ..Params::default() }
}

fn entry(config: &Params, command: &str) -> HandleListEntryRequest {
    let name = "entry.instance.istio-system".to_owned();
    let instance = Some(listentry::InstanceMsg { name, value: Some(Value::from(command)) });
    HandleListEntryRequest { instance, adapter_config: any(config), dedup_id: "1".to_owned() }
}

async fn call(client: &Client, command: &str) -> Result<(), Code> {
    let request = entry(&params("logs"), command).encode_to_vec();
    client.send(ListEntry::METHOD, &request).await.map(drop).map_err(|failure| failure.code)
}

fn is_of_this_machine(peer: &Json) -> bool {
    peer.as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:"))
}

#[tokio::test]
async fn a_failed_call_is_logged_with_what_is_known_of_it() {
    let mut server = Server::start(&["--log-json"]);
    let client = Client::connect(server.address).await;
    // A denial is an answer and not logged: the first event is that of the failure.
    assert_eq!(call(&client, "deny").await, Ok(()));
    assert_eq!(call(&client, "fail").await, Err(Code::Unavailable));
    let event = server.event("call failed");
    let fields = &event["fields"];
    assert_eq!(event["level"], "WARN");
    assert_eq!(fields["adapter"], "probe");
    assert_eq!(fields["template"], "listentry");
    assert_eq!(fields["instance"], "entry.instance.istio-system");
    assert_eq!(fields["code"], "UNAVAILABLE");
    assert_eq!(fields["error"], "adapter `probe`: failed on request");
    assert!(is_of_this_machine(&fields["peer"]), "{fields}");
    assert_eq!(fields["suppressed"], 0);
}

#[tokio::test]
async fn repeated_failures_are_suppressed_by_code() {
    let mut server = Server::start(&["--log-json"]);
    let client = Client::connect(server.address).await;
    for _ in 0..50 {
        assert_eq!(call(&client, "fail").await, Err(Code::Unavailable));
    }
    assert_eq!(call(&client, "panic").await, Err(Code::Internal));
    let codes = std::iter::from_fn(|| Some(server.event("call failed")["fields"]["code"].clone()));
    let unavailable = codes.take_while(|code| code == "UNAVAILABLE").count();
    // One more line for each ten seconds that the calls took.
    assert!((10..50).contains(&unavailable), "{unavailable} lines before that of another code");
}

#[tokio::test]
async fn a_panic_is_logged_in_json_alone() {
    let mut server = Server::start(&["--log-json"]);
    let client = Client::connect(server.address).await;
    assert_eq!(call(&client, "panic").await, Err(Code::Internal));
    // The standard message of a panic, which is not JSON, is not printed before it.
    let event = server.event("adapter panicked");
    let fields = &event["fields"];
    assert_eq!(event["level"], "ERROR");
    assert_eq!((&fields["adapter"], &fields["method"]), (&json!("probe"), &json!("handle")));
    assert_eq!(fields["panic"], "panic on request");
    assert!(fields["location"].as_str().unwrap().contains("src/probe.rs:"), "{fields}");
    let fields = &server.event("call failed")["fields"];
    assert_eq!(fields["code"], "INTERNAL");
    assert_eq!(fields["error"], "adapter `probe` panicked: panic on request");
}

#[tokio::test]
async fn a_panic_in_open_and_the_refusal_that_follows_are_logged() {
    let mut server = Server::start(&["--log-json"]);
    let client = Client::connect(server.address).await;
    let config = Params { open: "panic".to_owned(), ..params("logs") };
    let request = entry(&config, "allow").encode_to_vec();
    assert_eq!(client.send(ListEntry::METHOD, &request).await.unwrap_err().code, Code::Internal);
    let fields = &server.event("adapter panicked")["fields"];
    assert_eq!((&fields["adapter"], &fields["method"]), (&json!("probe"), &json!("open")));
    let fields = &server.event("call failed")["fields"];
    assert_eq!(fields["adapter"], "probe");
    assert_eq!(
        fields["error"],
        "adapter `probe` refuses its configuration: it panicked: panic in open on request"
    );
}

#[tokio::test]
async fn a_refused_session_is_logged() {
    let mut server = Server::start(&["--log-json"]);
    let client = Client::connect(server.address).await;
    let config = Params { fault: "wrong".to_owned(), ..params("logs") };
    let session = CreateSessionRequest { adapter_config: any(&config), ..CreateSessionRequest::default() };
    client.create_session(session).await;
    let fields = &server.event("session refused")["fields"];
    assert_eq!((&fields["adapter"], &fields["code"]), (&json!("probe"), &json!("INVALID_ARGUMENT")));
    assert!(fields["error"].as_str().unwrap().contains("fault: it is wrong"), "{fields}");
    assert!(is_of_this_machine(&fields["peer"]), "{fields}");
}

#[tokio::test]
async fn the_cause_of_an_abort_is_logged() {
    let mut server = Server::start(&["--log-json"]);
    let client = Client::connect(server.address).await;
    assert!(call(&client, "abort").await.is_err(), "the process ends");
    for cause in ["the cause of an abort", "panic on drop"] {
        assert_eq!(server.event("panic")["fields"]["panic"], cause);
    }
}

#[tokio::test]
async fn texts_of_peers_are_quoted_and_cut() {
    let mut server = Server::start(&[]);
    let client = Client::connect(server.address).await;
    let refused = async |fault: String| {
        let config = Params { fault, ..params("logs") };
        let session =
            CreateSessionRequest { adapter_config: any(&config), ..CreateSessionRequest::default() };
        client.create_session(session).await;
    };
    refused("wrong\n2026-01-01T00:00:00Z  INFO forged".to_owned()).await;
    let line = server.line("session refused");
    assert!(line.contains(r"it is wrong\n2026-01-01T00:00:00Z  INFO forged"), "{line}");
    refused("x".repeat(100_000)).await;
    let line = server.line("session refused");
    assert!(line.len() < 2_000 && line.contains("xxx..."), "{} bytes", line.len());
}

#[tokio::test]
async fn a_text_log_has_the_same_fields() {
    let mut server = Server::start(&[]);
    let client = Client::connect(server.address).await;
    assert_eq!(call(&client, "panic").await, Err(Code::Internal));
    let panic = server.line("panicked");
    for text in
        ["ERROR", "adapter panicked", r#"adapter="probe""#, r#"panic="panic on request""#, "probe.rs:"]
    {
        assert!(panic.contains(text), "no {text} in {panic}");
    }
    let failure = server.line("call failed");
    for text in
        ["WARN", r#"template="listentry""#, r#"instance="entry.instance.istio-system""#, r#"code="INTERNAL""#]
    {
        assert!(failure.contains(text), "no {text} in {failure}");
    }
}

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";

/// Enables the span of calls.
const SPANS: &str = "info,mixer_adapter::call=debug";

#[tokio::test]
async fn events_of_an_author_have_the_span_of_their_call() {
    let mut server = Server::start(&["--log-json", "--log", SPANS]);
    let client = Client::connect(server.address).await;
    let traced = |traceparent: &str| {
        let mut request = post(ListEntry::METHOD);
        request.headers_mut().insert("traceparent", traceparent.parse().unwrap());
        client.exchange(request, framed(&entry(&params("logs"), "log").encode_to_vec()))
    };
    traced(&format!("00-{TRACE_ID}-b7ad6b7169203331-01")).await.unwrap();
    let event = server.event("an event of the author");
    let span = &event["span"];
    assert_eq!(span["name"], "call");
    assert_eq!((&span["adapter"], &span["template"]), (&json!("probe"), &json!("listentry")));
    assert_eq!(span["instance"], "entry.instance.istio-system");
    assert!(is_of_this_machine(&span["peer"]), "{span}");
    assert_eq!((&span["trace_id"], &span["parent_id"]), (&json!(TRACE_ID), &json!("b7ad6b7169203331")));

    traced(&format!("00-{TRACE_ID}-b7ad6b7169203331")).await.unwrap();
    let event = server.event("an event of the author");
    assert_eq!(event["span"]["adapter"], "probe");
    assert_eq!(event["span"].get("trace_id"), None, "a malformed header is ignored: {event}");
}

const CONFIG: &str = "
kind: handler
metadata: {name: h}
spec: {compiledAdapter: probe, params: {ledger: engine}}
---
kind: instance
metadata: {name: i}
spec: {compiledTemplate: listentry, params: {value: request.path}}
---
kind: rule
metadata: {name: r}
spec: {actions: [{handler: h, instances: [i]}]}
";

#[tokio::test]
async fn calls_of_the_engine_have_the_name_of_the_handler() {
    let config = tempfile::tempdir().unwrap();
    std::fs::write(config.path().join("config.yaml"), CONFIG).unwrap();
    let mut server =
        Server::start(&["--log-json", "--log", SPANS, "--config", config.path().to_str().unwrap()]);
    server.event("configuration applied");
    let address = server.address.to_string();
    let check = |attributes: &str| {
        let check = ["check", "--address", &address, "--attributes", attributes];
        Command::new(PROGRAM).args(check).output().unwrap()
    };
    check("request.path=log");
    check("request.path=fail");
    let event = server.event("an event of the author");
    assert_eq!(event["span"]["handler"], "h.handler.istio-system");
    assert_eq!(event["span"]["instance"], "i.instance.istio-system");
    assert!(is_of_this_machine(&event["span"]["peer"]), "{event}");
    let fields = &server.event("call failed")["fields"];
    assert_eq!((&fields["handler"], &fields["adapter"]), (&json!("h.handler.istio-system"), &json!("probe")));
    assert!(is_of_this_machine(&fields["peer"]), "{fields}");
    let fields = &server.event("check failed")["fields"];
    assert_eq!(fields["code"], "INTERNAL");
    assert!(fields["error"].as_str().unwrap().contains("failed on request"), "{fields}");
}
