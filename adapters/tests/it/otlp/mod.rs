//! Telemetry for OpenTelemetry collectors: spans of the server, and what the adapter otlp sends.

mod adapter;
mod collector;

use std::fs;

use crate::support::{Server, binary, run};
use http::uri::PathAndQuery;
use mixer_adapter_engine::proto::istio::mixer::v1::{CheckRequest, CheckResponse};
use serde_json::{Value as Json, json};
use test_pki::Authority;
use tonic::{Request, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

use self::collector::{Collector, Item};

impl Collector {
    /// `serve` with this collector, the name of a service and further arguments.
    fn serve(&self, name: &str, arguments: &[&str]) -> Server {
        let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"];
        let mut serve = binary();
        serve.args(ports).args(arguments).args(["--otlp-endpoint", &self.url]);
        if let Some(file) = &self.authorities {
            serve.arg("--otlp-ca-cert-file").arg(file.path());
        }
        serve.env("OTEL_SERVICE_NAME", name).env("OTEL_BSP_SCHEDULE_DELAY", "50");
        serve.env("OTEL_RESOURCE_ATTRIBUTES", "zone=east%201,service.name=other");
        let server = Server::spawn(&mut serve).0;
        server.until("/readyz", "\nready\n");
        server
    }

    /// Sends a check with this `traceparent`.
    fn check(&self, server: &Server, traceparent: &str) {
        let address = format!("http://{}", server.grpc);
        let mut request = Request::new(CheckRequest::default());
        request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
        let answer = self.block_on(async {
            let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
            let mut client = Grpc::new(channel);
            client.ready().await.unwrap();
            let codec = ProstCodec::<CheckRequest, CheckResponse>::default();
            client.unary(request, PathAndQuery::from_static("/istio.mixer.v1.Mixer/Check"), codec).await
        });
        answer.unwrap();
    }

    /// The spans as soon as all of these have arrived, each by the names of a service and of the span.
    fn spans_until(&self, expected: &[(&str, &str)]) -> Vec<Item> {
        let has = |items: &[Item], (service, name): &(&str, &str)| {
            items.iter().any(|item| item.service() == *service && item.name() == *name)
        };
        self.items_until(|items| expected.iter().all(|expected| has(items, expected)))
    }
}

/// An id as the JSON of bytes.
fn id(bytes: &[u8]) -> Json {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes).into()
}

/// The method of the remote adapter.
const REMOTE: &str = "checknothing.HandleCheckNothingService/HandleCheckNothing";

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-00f067aa0ba902b7-00";

const RULES: &str = "\
kind: handler
metadata: {name: here}
spec: {compiledAdapter: noop, params: {}}
---
kind: instance
metadata: {name: all}
spec: {template: checknothing, params: {}}
---
kind: instance
metadata: {name: local}
spec: {compiledTemplate: checknothing, params: {}}
---
kind: rule
metadata: {name: both}
spec:
  actions:
  - {handler: here, instances: [local]}
  - {handler: away, instances: [all]}
";

#[test]
fn a_check_is_part_of_the_callers_trace_and_adapters_and_remote_calls_are_parts_of_the_check() {
    let collector = Collector::grpc();
    let adapter = collector.serve("adapter", &[]);
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("adapters.yaml"), run(&["manifest", "noop"]).stdout).unwrap();
    let handler = format!(
        "kind: handler\nmetadata: {{name: away}}\nspec:\n  adapter: noop\n  connection: {{address: \"{}\"}}\n  params: {{}}\n---\n",
        adapter.grpc
    );
    fs::write(directory.path().join("rules.yaml"), handler + RULES).unwrap();
    let server = collector.serve("policy", &["--config", directory.path().to_str().unwrap()]);

    // A caller that does not record its span does not want those of the check.
    collector.check(&server, UNSAMPLED);
    collector.check(&server, CALLER);
    let spans = collector.spans_until(&[("policy", "istio.mixer.v1.Mixer/Check"), ("adapter", REMOTE)]);
    let trace = id(&u128::from_str_radix(&CALLER[3..35], 16).unwrap().to_be_bytes());
    assert!(spans.iter().all(|span| span.item["traceId"] == trace), "{spans:?}");
    assert!(spans.iter().all(|span| span.resource["zone"] == "east 1"), "{spans:?}");

    let find = |by: &str, name: &str| {
        &spans.iter().find(|span| span.service() == by && span.name() == name).unwrap().item
    };
    let named = |name: &str| find("policy", name);
    let check = named("istio.mixer.v1.Mixer/Check");
    assert_eq!(check["parentSpanId"], id(&0x00f0_67aa_0ba9_02b7_u64.to_be_bytes()));
    assert_eq!(check["kind"], "SPAN_KIND_SERVER");
    assert_eq!(check["attributes"]["rpc.grpc.status_code"], 0);
    let call = named("call");
    assert_eq!((&call["parentSpanId"], &call["kind"]), (&check["spanId"], &json!("SPAN_KIND_INTERNAL")));
    assert_eq!(call["attributes"]["adapter"], "noop");
    let remote = named("remote call");
    assert_eq!((&remote["parentSpanId"], &remote["kind"]), (&check["spanId"], &json!("SPAN_KIND_CLIENT")));
    // The adapter goes on with it.
    let served = find("adapter", REMOTE);
    assert_eq!((&served["parentSpanId"], &served["kind"]), (&remote["spanId"], &json!("SPAN_KIND_SERVER")));
    let times = |span: &Json| ["startTimeUnixNano", "endTimeUnixNano"].map(|field| span[field].clone());
    let [start, end] = times(check).map(|nanos| nanos.as_str().unwrap().parse::<u64>().unwrap());
    assert!(start < end, "{check}");
}

#[test]
fn traces_are_sent_by_http_too_and_the_last_ones_at_the_end() {
    let collector = Collector::http();
    let mut server = collector.serve("policy", &["--otlp-protocol", "http/protobuf"]);
    collector.check(&server, CALLER);
    server.signal("TERM");
    server.child.wait().unwrap();
    let paths: Vec<String> = collector.requests().into_iter().map(|(path, _)| path).collect();
    assert!(!paths.is_empty() && paths.iter().all(|path| path == "/v1/traces"), "{paths:?}");
    assert!(collector.items().iter().any(|span| span.name() == "istio.mixer.v1.Mixer/Check"));
}

#[test]
fn spans_that_no_collector_accepts_are_counted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut serve = binary();
    let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "off"];
    serve.args(ports).args(["--otlp-endpoint", &format!("http://{}", listener.local_addr().unwrap())]);
    serve.env("OTEL_BSP_MAX_QUEUE_SIZE", "1").env("OTEL_BSP_SCHEDULE_DELAY", "1");
    drop(listener);
    let server = Server::spawn(&mut serve).0;
    let client = Collector::grpc();
    client.check(&server, CALLER);
    client.check(&server, CALLER);
    let lost = |page: String| {
        let line = page.lines().find(|line| line.starts_with("mixer_adapter_spans_lost_total "));
        line.and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).filter(|count| *count > 0)
    };
    crate::support::eventually("spans are lost", || lost(server.get("/metrics")));
}

#[test]
fn a_collector_with_tls_is_verified_with_a_file_of_ca_certificates() {
    let authority = Authority::new();
    let collector = Collector::secure(&authority);
    let server = collector.serve("policy", &[]);
    collector.check(&server, CALLER);
    collector.spans_until(&[("policy", "istio.mixer.v1.Mixer/Check")]);

    // Another authority has not issued its certificate.
    let mut unverified = Collector::secure(&authority);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), Authority::new().pem()).unwrap();
    unverified.authorities = Some(file);
    let mut server = unverified.serve("policy", &[]);
    unverified.check(&server, CALLER);
    // It tries to export the last spans before it ends.
    server.signal("TERM");
    server.child.wait().unwrap();
    assert!(unverified.requests().is_empty(), "no span is sent to a collector that cannot be verified");
}

#[test]
fn a_file_of_ca_certificates_that_cannot_be_used_is_an_error_at_the_start() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    let empty = empty.path().to_str().unwrap();
    for (file, reason) in [("nowhere.pem", "nowhere.pem"), (empty, empty)] {
        let ran = run(&["serve", "--otlp-endpoint", "https://127.0.0.1:1", "--otlp-ca-cert-file", file]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(
            ran.stderr.starts_with("error: cannot use --otlp-endpoint: ") && ran.stderr.contains(reason),
            "{ran:?}"
        );
    }
}

#[test]
fn an_endpoint_that_is_not_a_url_is_a_usage_error() {
    for endpoint in ["127.0.0.1:4317", "ftp://127.0.0.1:4317", "http://"] {
        let ran = run(&["serve", "--otlp-endpoint", endpoint]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("write http://HOST:PORT of a collector"), "{ran:?}");
    }
}
