//! Access logs whose rules or adapters do not work: other logs go on, and what is lost is counted.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use mixer_adapter_engine::Mixer;
use mixer_adapter_envoy::{
    AccessLogServer, Options, Services,
    proto::envoy::{
        data::accesslog::v3::HttpAccessLogEntry,
        service::accesslog::v3::{
            StreamAccessLogsMessage,
            stream_access_logs_message::{HttpAccessLogEntries, LogEntries},
        },
    },
};
use prost::Message as _;
use tokio::{runtime::Handle, time::Instant};
use tonic::{body::Body, codegen::Service as _};

use super::backend::{Script, engine, snapshot};

const REPORT: &str = r#"
kind: instance
metadata: {name: entry, namespace: istio-system}
spec: {template: logentry, params: {severity: '"Info"'}}
---
kind: rule
metadata: {name: log, namespace: istio-system}
spec: {actions: [{handler: h, instances: [entry]}]}
"#;

/// An instance that needs an attribute which no entry has.
const UNBUILT: &str = r#"
---
kind: instance
metadata: {name: unbuilt, namespace: istio-system}
spec: {template: logentry, params: {severity: request.api_key}}
---
kind: rule
metadata: {name: unbuilt, namespace: istio-system}
spec: {actions: [{handler: h, instances: [unbuilt]}]}
"#;

const GENERATOR: &str = r#"
---
kind: instance
metadata: {name: pods, namespace: istio-system}
spec: {template: kubernetes, params: {}, attributeBindings: {source.name: output.source_pod_name}}
---
kind: rule
metadata: {name: pods, namespace: istio-system}
spec: {actions: [{handler: h, instances: [pods]}]}
"#;

fn services(mixer: Arc<Mixer>) -> Arc<Services> {
    Arc::new(Services::new(mixer, Options::default(), &Handle::current()))
}

/// A message with equal entries.
fn message(count: usize) -> Vec<u8> {
    let logs = HttpAccessLogEntries { log_entry: vec![HttpAccessLogEntry::default(); count] };
    StreamAccessLogsMessage { identifier: None, log_entries: Some(LogEntries::HttpLogs(logs)) }
        .encode_to_vec()
}

/// Sends messages as a stream.
async fn send(services: &Arc<Services>, messages: impl IntoIterator<Item = Vec<u8>>) {
    let mut body = Vec::new();
    for message in messages {
        body.push(0);
        body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        body.extend(message);
    }
    let request = http::Request::post("/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs")
        .header("content-type", "application/grpc")
        .body(Body::new(Full::new(Bytes::from(body))))
        .unwrap();
    let Ok(response) = AccessLogServer::new(services.clone()).call(request).await;
    assert_eq!(response.headers().get("grpc-status").map(|status| status.as_bytes()), None, "{response:?}");
}

/// What was lost, by handler, and by the only namespace.
fn lost(services: &Services) -> (BTreeMap<Arc<str>, u64>, u64) {
    let tenants = services.counters().tenants();
    (services.counters().lost(), tenants.iter().map(|tenant| tenant.log_lost.load(Relaxed)).sum())
}

#[tokio::test(start_paused = true)]
async fn a_generator_that_hangs_delays_the_log_once_for_all_entries_of_a_message() {
    let (mixer, script) = engine(&[REPORT, GENERATOR].concat()).await;
    let services = services(mixer);
    script.delay("kubernetes", Duration::from_secs(3600));
    let start = Instant::now();
    send(&services, [message(100)]).await;
    services.flush().await;
    assert_eq!(start.elapsed().as_secs(), 10);
    assert_eq!(lost(&services), ([("".into(), 100)].into(), 100), "entries before their handlers were known");
}

#[tokio::test]
async fn instances_that_cannot_be_built_are_counted_with_their_handler() {
    let (mixer, script) = engine(&[REPORT, UNBUILT].concat()).await;
    let services = services(mixer);
    send(&services, [message(3)]).await;
    services.flush().await;
    assert_eq!(script.calls("logentry"), [3]);
    assert_eq!(lost(&services), ([("h.handler.istio-system".into(), 3)].into(), 3));
}

#[tokio::test]
async fn a_call_has_at_most_a_thousand_instances_of_one_message_or_of_several() {
    let (mixer, script) = engine(REPORT).await;
    let services = services(mixer);
    send(&services, [message(2_500), message(700)]).await;
    services.flush().await;
    let calls = script.calls("logentry");
    assert!(calls.iter().all(|instances| *instances <= 1_000), "{calls:?}");
    assert_eq!(calls.iter().sum::<i64>(), 3_200);
    assert_eq!(lost(&services), (BTreeMap::new(), 0));
}

#[tokio::test]
async fn a_handler_that_a_reload_replaces_is_closed_and_the_next_one_gets_the_entries() {
    let (mixer, former) = engine(REPORT).await;
    let services = services(mixer.clone());
    send(&services, [message(3)]).await;
    services.flush().await;
    assert_eq!((former.calls("logentry"), former.open_handlers()), (vec![3], 1));
    let next = Arc::<Script>::default();
    mixer.replace(snapshot(REPORT, &next).await);
    let closed = async {
        while former.open_handlers() > 0 {
            tokio::task::yield_now().await;
        }
    };
    // No entry has to come for it.
    tokio::time::timeout(Duration::from_secs(30), closed).await.unwrap();
    send(&services, [message(4)]).await;
    services.flush().await;
    assert_eq!((former.calls("logentry"), next.calls("logentry")), (vec![3], vec![4]));
    assert_eq!(next.open_handlers(), 1);
}

#[tokio::test(start_paused = true)]
async fn entries_wait_in_as_much_memory_as_a_tenant_may_use_however_small_they_are() {
    let services = services(Arc::new(Mixer::new()));
    // A field that nobody knows, and 10,000 entries of one byte.
    let entries = b"\x0a\x01\x0a".repeat(10_000);
    let unknown = Bytes::from(vec![0; 1 << 20]);
    let mut message = Vec::new();
    prost::encoding::bytes::encode(9, &unknown, &mut message);
    prost::encoding::bytes::encode(2, &entries, &mut message);
    send(&services, std::iter::repeat_n(message, 20)).await;
    // A tenant may use half of 16 MiB.
    let waiting = 200_000 - services.counters().lost().values().sum::<u64>();
    assert!(waiting > 0 && waiting * (24 + 32) <= 8 << 20, "{waiting}");
}
