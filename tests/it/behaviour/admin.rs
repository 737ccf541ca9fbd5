//! Health, reflection, and the pages of the admin port.

use std::time::SystemTime;

use bytes::Bytes;
use mixer_adapter::{prost::Message, tonic::Code};
use serde_json::{Value as Json, json};
use test_adapters::{Bystander, Probe, ledger};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::{v1, v1alpha};

use super::{
    requests::{ENTRY, probe, run_command, session, telling},
    support::{Client, ClientError, Serving, any, until},
};

async fn serving() -> Serving {
    Serving::start(|adapters| adapters.add::<Probe>().add::<Bystander>()).await
}

async fn health(client: &Client, service: &str) -> Result<i32, Code> {
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer: Result<HealthCheckResponse, ClientError> =
        client.call("/grpc.health.v1.Health/Check", &request).await;
    answer.map(|answer| answer.status).map_err(|failure| failure.code)
}

#[tokio::test]
async fn each_service_has_its_health() {
    const SERVING: i32 = 1;
    let serving = serving().await;
    let client = serving.connect().await;
    for service in [
        "",
        "listentry.HandleListEntryService",
        "metric.HandleMetricService",
        "quota.HandleQuotaService",
        "checknothing.HandleCheckNothingService",
        "istio.mixer.adapter.model.v1beta1.InfrastructureBackend",
    ] {
        assert_eq!(health(&client, service).await, Ok(SERVING), "{service:?}");
    }
    assert_eq!(health(&client, "tracespan.HandleTraceSpanService").await, Err(Code::NotFound));
}

/// Returns the descriptors of a symbol by reflection.
async fn reflected(client: &Client, symbol: &str) -> Vec<Vec<u8>> {
    use v1::{
        ServerReflectionRequest, ServerReflectionResponse, server_reflection_request::MessageRequest,
        server_reflection_response::MessageResponse,
    };
    let message_request = Some(MessageRequest::FileContainingSymbol(symbol.to_owned()));
    let request = ServerReflectionRequest { message_request, ..Default::default() };
    let answer: ServerReflectionResponse =
        client.call("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", &request).await.unwrap();
    match answer.message_response.unwrap() {
        MessageResponse::FileDescriptorResponse(files) => files.file_descriptor_proto,
        other => panic!("{symbol}: {other:?}"),
    }
}

#[tokio::test]
async fn reflection_describes_services_and_configurations() {
    let serving = serving().await;
    let client = serving.connect().await;
    for (symbol, file) in [
        ("listentry.HandleListEntryService", "listentry/template_handler_service.proto"),
        ("listentry.InstanceMsg", "listentry/template_handler_service.proto"),
        (
            "istio.mixer.adapter.model.v1beta1.InfrastructureBackend",
            "mixer/adapter/model/v1beta1/infrastructure_backend.proto",
        ),
        ("test.probe.Params", "probe.proto"),
        ("grpc.health.v1.Health", "health.proto"),
    ] {
        let files = reflected(&client, symbol).await;
        let names: Vec<_> = files
            .iter()
            .map(|file| prost_types::FileDescriptorProto::decode(&**file).unwrap().name().to_owned())
            .collect();
        assert!(names.iter().any(|name| name == file), "{symbol}: {names:?}");
    }
}

#[tokio::test]
async fn reflection_lists_the_services_for_older_clients_too() {
    let serving = serving().await;
    let client = serving.connect().await;
    let request = v1alpha::ServerReflectionRequest {
        message_request: Some(
            v1alpha::server_reflection_request::MessageRequest::ListServices(String::new()),
        ),
        ..Default::default()
    };
    let path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
    let answer: v1alpha::ServerReflectionResponse = client.call(path, &request).await.unwrap();
    let Some(v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(list)) =
        answer.message_response
    else {
        panic!("no list");
    };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    for served in [
        "listentry.HandleListEntryService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    ] {
        assert!(names.iter().any(|name| name == served), "{names:?}");
    }
}

#[tokio::test]
async fn a_server_that_listens_is_healthy_and_ready() {
    let serving = serving().await;
    assert_eq!(serving.get("/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(serving.get("/readyz").await, (200, "ready\n".to_owned()));
    let (status, page) = serving.get("/").await;
    assert!(status == 200 && page.starts_with("<!doctype html>"), "{page}");
    let (status, json) = serving.get("/status").await;
    assert_eq!(status, 200);
    let templates = r#""templates":["listentry","metric","quota"]"#;
    for text in [r#""name":"probe""#, "Misbehaves on request.", templates, r#""name":"bystander""#] {
        assert!(json.contains(text), "{text}: {json}");
    }
    let (status, text) = serving.get("/nothing").await;
    assert!(status == 404 && text.contains("/ is a page"), "{text}");
}

#[tokio::test]
async fn the_status_begins_with_what_fails_since_when_and_why() {
    let serving = serving().await;
    assert!(
        serving.get("/status").await.1.starts_with(r#"{"state":"green","problems":[],"past_problems":[],"#)
    );
    let client = serving.connect().await;
    run_command(&client, "failing", "allow").await.unwrap();
    run_command(&client, "failing", "fail").await.unwrap_err();
    let (_, text) = serving.get("/status?brief").await;
    let status: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(status["state"], "red");
    let problem = &status["problems"][0];
    assert_eq!(
        (&problem["level"], &problem["kind"], &problem["name"], &problem["failed"], &problem["calls"]),
        (&json!("red"), &json!("adapter"), &json!("probe"), &json!(1), &json!(2)),
        "{text}"
    );
    assert_eq!(problem["text"], "adapter probe fails: UNAVAILABLE");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert!(problem["since"].as_u64().is_some_and(|since| since <= now && since + 600 > now), "{text}");
    assert_eq!(problem["last"], problem["since"]);
    for measure in ["requests", "denials", "failures", "calls", "p50_micros", "p99_micros"] {
        assert!(status["history"][measure].is_array(), "{measure} in {text}");
    }
}

#[tokio::test]
async fn the_sessions_page_shows_claims_but_neither_configuration_nor_whole_ids() {
    let serving = serving().await;
    assert_eq!(json_page(&serving).await, json!({"total": 0, "sessions": []}));
    let client = serving.connect().await;
    let config = any(&probe("top secret"));
    let id = client.create_session(session(config.clone())).await.session_id;
    client.create_session(session(config)).await;
    let (_, page) = serving.get("/sessions").await;
    assert!(!page.contains("secret"), "{page}");
    assert_eq!(
        serde_json::from_str::<Json>(&page).unwrap(),
        json!({
            "total": 1,
            "sessions": [
                {
                    "id": id[..8], "adapter": "probe", "claims": 2, "abandoned": 0, "instances": [ENTRY],
                    "idle_tenths": 0,
                }
            ],
        })
    );
    serving.host.expire_idle();
    assert_eq!(json_page(&serving).await["sessions"][0]["idle_tenths"], 1);
}

async fn json_page(serving: &Serving) -> Json {
    serde_json::from_str(&serving.get("/sessions").await.1).unwrap()
}

#[tokio::test]
async fn the_metrics_page_counts_calls_sessions_and_handlers() {
    let serving = serving().await;
    let client = serving.connect().await;
    let (_, page) = serving.get("/metrics").await;
    // Templates that were not called have no series.
    for name in ["mixer_adapter_calls_total{", "mixer_adapter_handle_duration_seconds_count{"] {
        assert!(!page.contains(name), "{page}");
    }

    run_command(&client, "counted", "allow").await.unwrap();
    run_command(&client, "counted", "fail").await.unwrap_err();
    client
        .call::<HealthCheckResponse>("/listentry.HandleListEntryService/HandleListEntry", &Empty {})
        .await
        .unwrap_err();
    let mut broken = super::support::post("/listentry.HandleListEntryService/HandleListEntry");
    broken.headers_mut().insert("grpc-timeout", "1S".parse().unwrap());
    client.exchange(broken, Bytes::from_static(b"\0\0\0\0\x01\xff")).await.unwrap_err();
    client.create_session(session(any(&probe("counted")))).await;
    client.create_session(session(None)).await;

    let probe_calls = |code: &str| {
        format!("mixer_adapter_calls_total{{adapter=\"probe\",template=\"listentry\",code=\"{code}\"}}")
    };
    let unresolved = |code: &str| {
        format!("mixer_adapter_calls_total{{adapter=\"\",template=\"listentry\",code=\"{code}\"}}")
    };
    for (series, value) in [
        (probe_calls("OK"), 1.0),
        (probe_calls("UNAVAILABLE"), 1.0),
        (unresolved("FAILED_PRECONDITION"), 1.0),
        (unresolved("INVALID_ARGUMENT"), 1.0),
        ("mixer_adapter_handle_duration_seconds_count{adapter=\"probe\",template=\"listentry\"}".to_owned(), 2.0),
        (
            "mixer_adapter_handle_duration_seconds_bucket{le=\"+Inf\",adapter=\"probe\",template=\"listentry\"}"
                .to_owned(),
            2.0,
        ),
        ("mixer_adapter_sessions{adapter=\"probe\"}".to_owned(), 1.0),
        ("mixer_adapter_session_opens_total{result=\"ok\"}".to_owned(), 1.0),
        ("mixer_adapter_session_opens_total{result=\"refused\"}".to_owned(), 1.0),
        ("mixer_adapter_session_ends_total{reason=\"closed\"}".to_owned(), 0.0),
        ("mixer_adapter_panics_total{adapter=\"probe\"}".to_owned(), 0.0),
        ("mixer_adapter_cached_handlers".to_owned(), 1.0),
        ("mixer_adapter_open_handlers".to_owned(), 1.0),
    ] {
        assert_eq!(serving.metric(&series).await, value, "{series}");
    }
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "mixer_adapter::prost")]
struct Empty {}

#[tokio::test]
async fn the_admin_port_answers_while_calls_are_served() {
    let serving = serving().await;
    let (client, ledger) = (serving.connect().await, ledger("admin meanwhile"));
    let call = telling(&client, "admin meanwhile", "wait");
    until("the call is served", || ledger.entered() == 1).await;
    assert_eq!(serving.get("/healthz").await.0, 200);
    assert_eq!(serving.metric("mixer_adapter_open_handlers").await, 1.0);
    ledger.open_gate();
    assert!(call.await.unwrap().is_ok());
}
