//! The adapter answers in the program's own server, on the ports of the framework and without a server.
#![allow(clippy::unwrap_used)]

use std::{
    convert::Infallible,
    fmt,
    future::{Ready, ready},
    process::Command,
    task::{Context, Poll},
    time::Duration,
};

use axum::http::{HeaderMap, Request, Response};
use embedded::Closed;
use mixer_adapter::{
    Code,
    service::{Server, ServerOptions, Workers},
    template::ListEntry,
    testing::{FakeMixer, attributes},
};
use mixer_adapter_net::HttpClient;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::counter::ConstCounter,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::{
    body::Body,
    codegen::Service,
    server::NamedService,
    transport::{Channel, server::TcpIncoming},
};

mixer_adapter::testing::compliance!(Closed, config("closed: [/admin]"));

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

async fn get(url: String) -> (HeaderMap, String) {
    let request = Request::get(url).body(Default::default()).unwrap();
    let response = HttpClient::new(Duration::from_secs(30), 1 << 20).send(request).await.unwrap();
    let (head, body) = response.into_parts();
    (head.headers, String::from_utf8(body.to_vec()).unwrap())
}

/// Checks a closed and an open path by a Mixer whose adapter is at an address.
async fn check_at(address: &str) {
    let mixer = FakeMixer::with::<Closed>()
        .handler("closed", "closed: [/admin]")
        .instance::<ListEntry>("path", "value: request.url_path")
        .rule("true", "closed", ["path"])
        .at(address)
        .start()
        .await
        .unwrap();
    let path = |path: &str| attributes! { "request.url_path" => path };
    mixer.check(path("/admin")).await.expect_denied(Code::PermissionDenied, "closed");
    mixer.check(path("/")).await.expect_allowed();
}

#[tokio::test]
async fn a_program_of_axum_and_tonic_mounts_the_adapter_beside_its_own_routes() {
    let host = embedded::host().unwrap();
    let (listener, address) = listener().await;
    let served = tonic::transport::Server::builder()
        .accept_http1(true)
        .add_routes(embedded::app(host.clone()).into())
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(served);
    let (headers, body) = get(format!("http://{address}/hello")).await;
    assert_eq!((headers["server"].to_str().unwrap(), body.as_str()), ("embedded", "hello"));
    check_at(&address).await;
    let (_, metrics) = get(format!("http://{address}/metrics")).await;
    let count = "\nadapter_closed_answers_total{handler=\"1\",verdict=\"denied\"} 1\n";
    assert!(metrics.contains(count) && metrics.ends_with("# EOF\n"), "{metrics}");
    host.close(Duration::from_secs(30)).await;
    assert_eq!(host.adapters().handler_metrics().unwrap(), "", "the handler is closed");
}

/// A service of the program.
#[derive(Clone)]
struct Greeter;

impl NamedService for Greeter {
    const NAME: &'static str = "test.Greeter";
}

impl Service<Request<Body>> for Greeter {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        ready(Ok(tonic::Status::already_exists("hello").into_http()))
    }
}

/// Metrics of the program.
#[derive(Debug)]
struct Greetings;

impl Collector for Greetings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let count = ConstCounter::new(7_u64);
        count.encode(encoder.encode_descriptor("greetings", "Greetings", None, count.metric_type())?)
    }
}

#[tokio::test]
async fn the_ports_of_the_framework_serve_services_and_metrics_of_the_program() {
    let ((grpc, address), (admin, admin_address)) = (listener().await, listener().await);
    let server = Server::new(embedded::host().unwrap(), ServerOptions::default())
        .add_service(Greeter)
        .add_collector(Box::new(Greetings))
        .bind_to(grpc, Some(admin));
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let served = tokio::spawn(async move { server.run(&Workers::start(1).unwrap(), stopped).await });
    check_at(&address).await;
    let mut channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
    let request = Request::post(format!("http://{address}/test.Greeter/Hello")).body(Body::empty()).unwrap();
    let answer = channel.call(request).await.unwrap();
    assert_eq!(answer.headers()["grpc-status"], "6");
    let (_, page) = get(format!("http://{admin_address}/metrics")).await;
    for line in ["greetings_total 7", "adapter_closed_answers_total{handler=\"1\",verdict=\"allowed\"} 1"] {
        assert!(page.lines().any(|known| known == line), "{line}: {page}");
    }
    stop.cancel();
    served.await.unwrap().unwrap();
}

#[test]
fn the_engine_decides_without_a_server() {
    for (path, code) in [("/admin", "7 "), ("/", "0 ")] {
        let output = Command::new(env!("CARGO_BIN_EXE_engine")).arg(path).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.starts_with(code), "{path}: {printed}{}", String::from_utf8_lossy(&output.stderr));
    }
}
