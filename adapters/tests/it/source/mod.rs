//! The command `source`.

mod istio_kinds;
mod secured;

use crate::support;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use futures_util::stream;
use http::uri::PathAndQuery;
use mixer_adapter::{
    prost::Message,
    proto::Status,
    tonic::{
        Code, Request, Streaming,
        client::Grpc,
        service::Routes,
        transport::{Channel, Endpoint},
    },
};
use mixer_adapter_streams::{
    mcp::sink::ResourceSinkService,
    proto::istio::mcp::v1alpha1::{
        RequestResources, Resources, SinkNode, resource_source_client::ResourceSourceClient,
    },
    stream::{
        listen,
        sink::{Sink, SinkOptions},
    },
};
use serde_json::Value as Json;
use support::{Server, binary, eventually, run};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic_prost::ProstCodec;

const RULES: &str = "istio/policy/v1beta1/rules";

/// `source` of that directory.
fn start(directory: &Path, arguments: &[&str]) -> Server {
    let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"];
    Server::spawn(binary().arg("source").arg(directory).args(ports).args(arguments)).0
}

fn rule(name: &str) -> String {
    format!(
        "---\napiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {{name: {name}, namespace: ns}}\nspec: {{match: 'true'}}\n"
    )
}

/// `/config`, once it is as it should be.
fn config(server: &Server, ready: impl Fn(&Json) -> bool) -> Json {
    eventually("/config", || {
        let answer = server.get("/config");
        let json: Json = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        Some(json).filter(|json| ready(json))
    })
}

fn until_ready(server: &Server) {
    eventually("the server is ready", || server.get("/readyz").starts_with("HTTP/1.1 200").then_some(()));
}

async fn client(server: &Server) -> ResourceSourceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap();
    ResourceSourceClient::new(endpoint.connect().await.unwrap())
}

/// A sink, by hand.
struct Stream {
    requests: mpsc::Sender<RequestResources>,
    pushes: Streaming<Resources>,
}

impl Stream {
    async fn open(server: &Server) -> Self {
        let mut client = client(server).await;
        let (requests, mut outgoing) = mpsc::channel(16);
        let outgoing = futures_util::stream::poll_fn(move |context| outgoing.poll_recv(context));
        let pushes = client.establish_resource_stream(outgoing).await.unwrap().into_inner();
        Self { requests, pushes }
    }

    async fn send(&self, collection: &str, nonce: &str, refusal: Option<&str>) {
        let sink_node = Some(SinkNode { id: "by-hand".to_owned(), annotations: Default::default() });
        let error_detail =
            refusal.map(|message| Status { code: 3, message: message.to_owned(), details: Vec::new() });
        let (collection, response_nonce) = (collection.to_owned(), nonce.to_owned());
        let request = RequestResources {
            sink_node,
            collection,
            response_nonce,
            error_detail,
            ..RequestResources::default()
        };
        self.requests.send(request).await.unwrap();
    }

    async fn resources(&mut self) -> Resources {
        timeout(Duration::from_secs(30), self.pushes.message()).await.unwrap().unwrap().unwrap()
    }

    /// The next push: its nonce and the names in it.
    async fn push(&mut self) -> (String, Vec<String>) {
        let push = self.resources().await;
        let names = push.resources.into_iter().map(|resource| resource.metadata.unwrap().name);
        (push.nonce, names.collect())
    }

    async fn is_silent(&mut self) -> bool {
        timeout(Duration::from_millis(300), self.pushes.message()).await.is_err()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_served_changes_are_pushed_and_the_status_has_the_versions_of_each_sink() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    fs::write(&path, rule("a")).unwrap();
    let server = start(directory.path(), &[]);
    let mut sink = Stream::open(&server).await;
    sink.send(RULES, "", None).await;
    let (first, names) = sink.push().await;
    assert_eq!(names, ["ns/a"]);
    sink.send(RULES, &first, None).await;
    let status = config(&server, |json| json["sinks"][0]["collections"][RULES]["accepted"].is_string());
    assert_eq!(status["sinks"][0]["id"], "by-hand");
    assert_eq!(status["collections"][RULES]["resources"], 1);
    assert_eq!(status["sinks"][0]["collections"][RULES]["accepted"], status["collections"][RULES]["version"]);

    fs::write(&path, rule("a") + &rule("b")).unwrap();
    let (second, names) = sink.push().await;
    assert_eq!(names, ["ns/a", "ns/b"]);
    sink.send(RULES, &second, Some("ns/b is bad")).await;
    let status = config(&server, |json| json["sinks"][0]["collections"][RULES]["refused"].is_array());
    let refused = &status["sinks"][0]["collections"][RULES]["refused"];
    assert_eq!(*refused, serde_json::json!([status["collections"][RULES]["version"], "ns/b is bad"]));
    assert!(sink.is_silent().await, "what was refused is not sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_collection_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), &[]);
    let mut sink = Stream::open(&server).await;
    for collection in [RULES, "istio/networking/v1alpha3/gateways", "no/such"] {
        sink.send(collection, "", None).await;
        assert_eq!(sink.push().await.1, [""; 0], "{collection}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_file_is_skipped_and_reported_and_its_neighbours_are_served() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), "kind: rule\nmetadata: {name: [}\n").unwrap();
    fs::write(directory.path().join("b.yaml"), rule("b") + &rule("not..a.label")).unwrap();
    let server = start(directory.path(), &[]);
    let mut sink = Stream::open(&server).await;
    sink.send(RULES, "", None).await;
    assert_eq!(sink.push().await.1, ["ns/b"]);
    let faults = config(&server, |_| true)["faults"].to_string();
    assert!(faults.contains("a.yaml:2: cannot be read: "), "{faults}");
    assert!(faults.contains("not..a.label.rule.ns: cannot be served by MCP: "), "{faults}");
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_envoy_are_served_and_their_faults_have_a_line_and_a_field() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = "'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster";
    let text = format!(
        "resources:\n- {cluster}\n  name: outbound|80||a.b\n  connect_timeout: 1s\n- {cluster}\n  name: bad\n  connect_timeout: soon\n\
         - {cluster}\n  name: outbound|80||a.b\n"
    );
    fs::write(directory.path().join("envoy.yaml"), text).unwrap();
    let server = start(directory.path(), &[]);
    let mut sink = Stream::open(&server).await;
    sink.send("envoy.config.cluster.v3.Cluster", "", None).await;
    assert_eq!(sink.push().await.1, ["outbound|80||a.b"]);
    let faults = config(&server, |_| true)["faults"].to_string();
    let bad = "envoy.yaml:7: bad.envoy.config.cluster.v3.Cluster: connect_timeout: \\\"soon\\\" is not a valid duration; ";
    assert!(faults.contains(bad), "{faults}");
    assert!(
        faults.contains("envoy.yaml:8: outbound|80||a.b.envoy.config.cluster.v3.Cluster: is given twice; "),
        "{faults}"
    );
}

/// The policy for versions asks what extensions are there, in which version.
#[test]
fn a_node_says_the_versions_of_its_adapters() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rule.yaml"), rule("r")).unwrap();
    let source = start(directory.path(), &[]);
    let server = Server::start(&["--config", &format!("xds://{}", source.grpc)]);
    let listed: Json = run(&["adapters", "--json"]).json();
    let adapters = listed.as_array().unwrap();
    let denier = adapters.iter().find(|adapter| adapter["name"] == "denier").unwrap();
    let expected = format!("denier {}", denier["version"].as_str().unwrap());
    config(&source, |json| {
        let extensions = json["sinks"][0]["annotations"]["extensions"].as_str().unwrap_or_default();
        extensions.split("; ").any(|extension| extension == expected)
    });
    drop(server);
}

#[tokio::test]
async fn health_and_reflection_are_served_beside_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rule.yaml"), rule("r")).unwrap();
    let source = start(directory.path(), &[]);
    until_ready(&source);
    let endpoint = Endpoint::from_shared(format!("http://{}", source.grpc)).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let names = [
        "",
        "istio.mcp.v1alpha1.ResourceSource",
        "envoy.service.discovery.v3.AggregatedDiscoveryService",
        "envoy.service.cluster.v3.ClusterDiscoveryService",
        "envoy.api.v2.ClusterDiscoveryService",
    ];
    for service in names {
        let request = NameRequest { service: service.to_owned(), ..NameRequest::default() };
        let answer: HealthResponse = call(&channel, "/grpc.health.v1.Health/Check", request).await;
        // SERVING.
        assert_eq!(answer.status, 1, "{service}");
    }
    let request = NameRequest { list_services: Some(String::new()), ..NameRequest::default() };
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let answer: ReflectionResponse = call(&channel, path, request).await;
    let listed: Vec<_> = answer.services.unwrap().service.into_iter().map(|service| service.name).collect();
    // Reflection has the services whose descriptors are compiled in.
    for service in &names[1..3] {
        assert!(listed.iter().any(|name| name == service), "{service} is not in {listed:?}");
    }
}

/// `HealthCheckRequest`, or `ServerReflectionRequest`.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::mixer_adapter::prost")]
struct NameRequest {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(string, optional, tag = "7")]
    list_services: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::mixer_adapter::prost")]
struct HealthResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// `ServerReflectionResponse`.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::mixer_adapter::prost")]
struct ReflectionResponse {
    #[prost(message, optional, tag = "6")]
    services: Option<Services>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::mixer_adapter::prost")]
struct Services {
    #[prost(message, repeated, tag = "1")]
    service: Vec<ServiceName>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::mixer_adapter::prost")]
struct ServiceName {
    #[prost(string, tag = "1")]
    name: String,
}

/// Sends one message and returns the first of the answer.
async fn call<Q: Message + 'static, P: Message + Default + 'static>(
    channel: &Channel,
    path: &'static str,
    request: Q,
) -> P {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let request = Request::new(stream::once(async { request }));
    let answers = grpc.streaming(request, PathAndQuery::from_static(path), ProstCodec::default()).await;
    answers.unwrap().into_inner().message().await.unwrap().unwrap()
}

#[test]
fn the_resources_of_envoy_that_the_documentation_shows_are_served() {
    let page = include_str!("../../../../docs/configuration/serving.md");
    let shown = page.split("## Resources of Envoy").nth(1).unwrap().split("```yaml\n").nth(1).unwrap();
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("shown.yaml"), shown.split("```").next().unwrap()).unwrap();
    let server = start(directory.path(), &[]);
    let status = config(&server, |json| json["collections"][RULES].is_object());
    assert_eq!(status["faults"], serde_json::json!([]));
    assert_eq!(status["collections"]["envoy.config.listener.v3.Listener"]["resources"], 1);
}

#[test]
fn resources_of_envoy_are_nothing_to_serve() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("mixer.yaml"), include_str!("../../../config/sample.yaml")).unwrap();
    let cluster =
        "{'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a, connect_timeout: soon}";
    fs::write(directory.path().join("envoy.yaml"), format!("resources:\n- {cluster}\n- {{name: b}}\n"))
        .unwrap();
    let server = Server::start(&["--config", directory.path().to_str().unwrap()]);
    let status = config(&server, |json| json["applied"] == 1);
    assert_eq!(status["resources"]["envoy.config.cluster.v3.Cluster"], 1);
    assert_eq!(status["rejected"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_missing_is_waited_for_and_one_that_goes_missing_deletes_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("later");
    let server = start(&directory, &[]);
    let faults = config(&server, |json| json["faults"][0].is_string())["faults"].to_string();
    assert!(faults.contains("later: cannot be read: "), "{faults}");
    assert!(server.get("/readyz").contains("waiting for: configuration\n"));
    let mut sink = Stream::open(&server).await;
    sink.send(RULES, "", None).await;
    sink.send("no/such", "", None).await;
    assert!(sink.is_silent().await, "nobody knows yet what there is");

    let ready = parent.path().join("ready");
    fs::create_dir(&ready).unwrap();
    fs::write(ready.join("a.yaml"), rule("a")).unwrap();
    fs::rename(&ready, &directory).unwrap();
    let mut pushed = [sink.push().await, sink.push().await];
    pushed.sort_by_key(|(_, names)| names.len());
    assert_eq!((&pushed[0].1, &pushed[1].1), (&vec![], &vec!["ns/a".to_owned()]));
    until_ready(&server);

    sink.send(RULES, &pushed[1].0, None).await;
    fs::rename(&directory, parent.path().join("gone")).unwrap();
    config(&server, |json| json["faults"][0].is_string());
    assert!(sink.is_silent().await);
    assert_eq!(config(&server, |_| true)["collections"][RULES]["resources"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_stopped_says_so_to_its_sinks_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), rule("a")).unwrap();
    let mut server = start(directory.path(), &[]);
    let mut sink = Stream::open(&server).await;
    sink.send(RULES, "", None).await;
    sink.push().await;
    server.signal("TERM");
    let ended = timeout(Duration::from_secs(30), sink.pushes.message()).await.unwrap().unwrap_err();
    assert_eq!((ended.code(), ended.message()), (Code::Unavailable, "the source is going away"));
    drop(sink);
    assert_eq!(exit_code(&mut server.child), 0);
}

fn exit_code(child: &mut Child) -> i32 {
    eventually("the process exits", || child.try_wait().unwrap()).code().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn sinks_are_dialed_and_served() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), rule("a")).unwrap();
    let (sink, mut deliveries) = Sink::start(SinkOptions::new("listening", [RULES]), None);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("mcp://{}", listener.local_addr().unwrap());
    let service = ResourceSinkService::serve(sink, &ResourceSinkService::default_options());
    tokio::spawn(listen(listener, Routes::new(service), CancellationToken::new()));
    let server = start(directory.path(), &["--sink", &address]);
    let offer = timeout(Duration::from_secs(30), deliveries.recv()).await.unwrap().unwrap();
    assert_eq!(offer.content().resources[0].name, "ns/a");
    offer.accept();
    let status = config(&server, |json| json["sinks"][0]["collections"][RULES]["accepted"].is_string());
    assert_eq!(status["sinks"][0]["peer"], address.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn sinks_beyond_the_limit_are_turned_away() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), &["--max-sinks", "1"]);
    let mut first = Stream::open(&server).await;
    first.send(RULES, "", None).await;
    first.push().await;
    let mut client = client(&server).await;
    let refused = client.establish_resource_stream(futures_util::stream::pending()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}

#[test]
fn there_is_no_admin_port_unless_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = binary()
        .args(["source", "--listen", "127.0.0.1:0", "--config"])
        .arg(directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let printed: Vec<_> = lines.take_while(|line| !line.starts_with("Try ")).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(printed.len(), 2, "{printed:?}");
    assert!(printed[0].starts_with("Serving fs://"), "{printed:?}");
    assert!(printed[1].starts_with("gRPC on 127.0.0.1:"), "{printed:?}");
}

#[test]
fn a_command_line_that_is_wrong_says_what_would_be_right() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let cases: [(&[&str], i32, &str); 9] = [
        (&["source"], 2, "<DIR>"),
        (&["source", "--config", "mcp://h:1"], 2, "mcp://h:1: only files can be served; write a directory"),
        (&["source", "--config", ".", "--sink", "sinks/"], 2, "write mcp://HOST:PORT, or mcps:// for TLS"),
        (&["source", "--config", ".", "--listen", "mcps://h"], 2, "\"h\" is not a valid address"),
        (&["source", "--config", ".", "--max-requests", "0"], 2, "--max-requests"),
        (&["source", "--config", ".", "--log", "a=b=c"], 1, "--log \"a=b=c\" is not a valid filter"),
        (&["source", "--config", ".", "--descriptors", "no/such"], 1, "--descriptors no/such: No such file"),
        (&["source", "--config", ".", "--descriptors", "Cargo.toml"], 1, "not an encoded FileDescriptorSet"),
        (&["source", "--config", ".", "--listen", &taken], 1, &format!("cannot listen on {taken}")),
    ];
    for (arguments, code, reason) in cases {
        let ran = run(arguments);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.stderr.contains(reason), "{ran:?}");
    }
}

/// Without the flag the eighth connection comes after a minute: waits double from a second.
#[test]
fn the_longest_wait_before_a_sink_is_dialed_again_can_be_set() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), rule("a")).unwrap();
    let sink = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mcp://{}", sink.local_addr().unwrap());
    let _source = start(directory.path(), &["--sink", &url, "--max-redial-wait", "50ms"]);
    sink.set_nonblocking(true).unwrap();
    for _ in 0..8 {
        // Each connection ends at once.
        eventually("the sink is dialed again", || sink.accept().ok());
    }
}
