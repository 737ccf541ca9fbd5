//! Traces that the server sends to an OpenTelemetry collector.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::Duration,
};

use crate::support::{Server, binary, run};
use http::uri::PathAndQuery;
use mixer_adapter_engine::proto::istio::mixer::v1::{CheckRequest, CheckResponse};
use mixer_adapter_net::{
    Stream,
    tls::{self, KeyPair, ServerOptions},
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value,
    trace::v1::{Span, span::SpanKind},
};
use test_pki::{Authority, Files};
use tokio::{io::copy_bidirectional, net::TcpStream};
use tokio_util::sync::DropGuard;
use tonic::{Request, Response, Status, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

/// A collector that passes on what it receives.
struct Collector(SyncSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send(request.into_inner()).unwrap();
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector on a free port.
struct Running {
    url: String,
    received: Receiver<ExportTraceServiceRequest>,
    runtime: tokio::runtime::Runtime,
    /// CA certificates, if the collector has TLS.
    authorities: Option<tempfile::NamedTempFile>,
    _files: Files,
    _stop: DropGuard,
}

fn collector() -> Running {
    start(None)
}

/// A collector whose certificate is issued by an authority.
fn secure_collector(authority: &Authority) -> Running {
    start(Some(authority))
}

fn start(authority: Option<&Authority>) -> Running {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (sender, received) = sync_channel(1_000);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let stop = tokio_util::sync::CancellationToken::new();
    let served = tonic::transport::Server::builder()
        .add_service(TraceServiceServer::new(Collector(sender)))
        .serve_with_shutdown(address, stop.clone().cancelled_owned());
    runtime.spawn(served);
    let (files, mut url) = (Files::new(), format!("http://{address}"));
    let authorities = authority.map(|authority| {
        url = format!("https://{}", runtime.block_on(secured(authority, &files, address)));
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), authority.pem()).unwrap();
        file
    });
    Running { url, received, runtime, authorities, _files: files, _stop: stop.drop_guard() }
}

/// An address with TLS in front of another one, until the runtime ends.
async fn secured(authority: &Authority, files: &Files, behind: SocketAddr) -> SocketAddr {
    let own = authority.issue(&["127.0.0.1"]);
    let file = |name, content: &str| files.write(name, content).into();
    let identity =
        KeyPair { certificate: file("cert.pem", &own.certificate), key: file("key.pem", &own.key) };
    let options =
        ServerOptions { identity, client_authorities: None, optional_certificates: false, http1: false };
    let tls = tls::Server::load(options).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let accepted = tls.accept(Stream::Left(stream), Duration::from_secs(10)).await;
                // A client that does not trust the certificate ends the handshake.
                let Ok((mut stream, _)) = accepted else { return };
                let mut behind = TcpStream::connect(behind).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut behind).await;
            });
        }
    });
    address
}

impl Running {
    /// `serve` with this collector, the name of a service and a configuration.
    fn serve(&self, name: &str, config: &[&str]) -> Server {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"];
        let mut serve = binary();
        serve.args(arguments).args(config).args(["--otlp-endpoint", &self.url]);
        if let Some(file) = &self.authorities {
            serve.arg("--otlp-ca-cert-file").arg(file.path());
        }
        serve.env("OTEL_SERVICE_NAME", name).env("OTEL_BSP_SCHEDULE_DELAY", "50");
        let server = Server::spawn(&mut serve).0;
        server.until("/readyz", "\nready\n");
        server
    }

    /// Sends a check with this `traceparent`.
    fn check(&self, server: &Server, traceparent: &str) {
        let address = format!("http://{}", server.grpc);
        let mut request = Request::new(CheckRequest::default());
        request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
        let answer = self.runtime.block_on(async {
            let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
            let mut client = Grpc::new(channel);
            client.ready().await.unwrap();
            let codec = ProstCodec::<CheckRequest, CheckResponse>::default();
            client.unary(request, PathAndQuery::from_static("/istio.mixer.v1.Mixer/Check"), codec).await
        });
        answer.unwrap();
    }

    /// The spans until all of these were there, each by the names of a service and of the span; with the names of the services that sent them.
    fn spans_until(&self, expected: &[(&str, &str)]) -> Vec<(String, Span)> {
        let mut spans: Vec<(String, Span)> = Vec::new();
        let is_there = |spans: &[(String, Span)], (by, name): &(&str, &str)| {
            spans.iter().any(|(service, span)| service == by && span.name == *name)
        };
        while !expected.iter().all(|expected| is_there(&spans, expected)) {
            let batch = self.received.recv_timeout(Duration::from_secs(60)).unwrap();
            for resource in batch.resource_spans {
                let attributes = resource.resource.unwrap().attributes;
                let service = attributes.iter().find(|pair| pair.key == "service.name").unwrap();
                let Some(Value::StringValue(service)) = service.value.clone().unwrap().value else {
                    panic!()
                };
                let found = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                spans.extend(found.map(|span| (service.clone(), span)));
            }
        }
        spans
    }
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
    let collector = collector();
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
    let of_trace =
        |span: &Span, id: &str| span.trace_id == u128::from_str_radix(id, 16).unwrap().to_be_bytes();
    assert!(spans.iter().all(|(_, span)| of_trace(span, &CALLER[3..35])), "{spans:?}");

    let find = |by: &str, name: &str| {
        &spans.iter().find(|(service, span)| service == by && span.name == name).unwrap().1
    };
    let named = |name: &str| find("policy", name);
    let check = named("istio.mixer.v1.Mixer/Check");
    assert_eq!(check.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    assert_eq!(check.kind(), SpanKind::Server);
    let code = check.attributes.iter().find(|pair| pair.key == "rpc.grpc.status_code").unwrap();
    assert_eq!(code.value.clone().unwrap().value, Some(Value::IntValue(0)));
    let call = named("call");
    assert_eq!(call.parent_span_id, check.span_id);
    let adapter = call.attributes.iter().find(|pair| pair.key == "adapter").unwrap();
    assert_eq!(adapter.value.clone().unwrap().value, Some(Value::StringValue("noop".to_owned())));
    let remote = named("remote call");
    assert_eq!((remote.parent_span_id.clone(), remote.kind()), (check.span_id.clone(), SpanKind::Client));
    // The adapter goes on with it.
    let served = find("adapter", REMOTE);
    assert_eq!((served.parent_span_id.clone(), served.kind()), (remote.span_id.clone(), SpanKind::Server));
}

#[test]
fn a_collector_with_tls_is_verified_with_a_file_of_ca_certificates() {
    let authority = Authority::new();
    let collector = secure_collector(&authority);
    let server = collector.serve("policy", &[]);
    collector.check(&server, CALLER);
    collector.spans_until(&[("policy", "istio.mixer.v1.Mixer/Check")]);

    // Another authority has not issued its certificate.
    let mut unverified = secure_collector(&authority);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), Authority::new().pem()).unwrap();
    unverified.authorities = Some(file);
    let mut server = unverified.serve("policy", &[]);
    unverified.check(&server, CALLER);
    // It tries to export the last spans before it ends.
    server.signal("TERM");
    server.child.wait().unwrap();
    assert!(
        unverified.received.try_recv().is_err(),
        "no span is sent to a collector that cannot be verified"
    );
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
