//! REST: `POST /v3/discovery:TYPE` on the port of gRPC, and the `Fetch` methods.

use std::{fs, io::Write as _, net::SocketAddr, time::Duration};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use mixer_adapter_config::source::FileSource;
use mixer_adapter_net::HttpClient;
use mixer_adapter_streams::{
    FILE_FORMATS, SourceSettings, StreamSource, Types, Wanted,
    proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    stream::{Peer, source::feed},
    xds::sink::{PollOptions, node},
};
use prost::Message as _;
use serde_json::{Value as Json, json};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet, time::timeout};
use tonic::{Code, client::Grpc};
use tonic_prost::ProstCodec;

use super::{
    messages::*,
    sockets::{SERVICES, Server},
};

pub(crate) const SOON: Duration = Duration::from_secs(20);

async fn post(
    server: &Server,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Response<Bytes> {
    post_to(server.address, path, headers, body.into()).await
}

fn post_to(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> impl Future<Output = Response<Bytes>> + use<> {
    let mut request = Request::post(format!("http://{address}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let client = HttpClient::new(SOON, 1 << 20);
    let request = request.body(body).unwrap();
    async move { client.send(request).await.unwrap() }
}

const JSON: (&str, &str) = ("content-type", "application/json");

/// Posts JSON; the answer is awaited as long as the server holds it.
pub(crate) async fn ask_json(server: &Server, path: &str, request: Json) -> (StatusCode, Json) {
    let answer = post(server, path, &[JSON], request.to_string()).await;
    (answer.status(), serde_json::from_slice(answer.body()).unwrap_or_default())
}

/// Posts JSON and waits for no news.
async fn ask_now(server: &Server, path: &str, request: Json) -> (StatusCode, Json) {
    let answer = post(server, path, &[JSON, ("prefer", "wait=0")], request.to_string()).await;
    (answer.status(), serde_json::from_slice(answer.body()).unwrap_or_default())
}

#[tokio::test]
async fn post_discovery_routes_answers_a_directory_of_files_in_json() {
    let directory = tempfile::tempdir().unwrap();
    let routes = "resources:\n- '@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration\n  name: local_route\n  \
                  virtual_hosts: [{name: local_service, domains: ['*']}]\n";
    fs::write(directory.path().join("routes.yaml"), routes).unwrap();
    fs::write(directory.path().join("rule.yaml"), "kind: rule\nmetadata: {name: r}\nspec: {match: 'true'}\n")
        .unwrap();
    let text = "resources { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: \"text\" } }\n";
    fs::write(directory.path().join("clusters.textproto"), text).unwrap();
    let server = Server::start().await;
    let files = FileSource::new(directory.path(), "ns").with_formats(FILE_FORMATS);
    tokio::spawn(feed(server.source.clone(), files, Types::default()));
    let (status, answer) =
        ask_json(&server, "/v3/discovery:routes", json!({ "node": { "id": "edge" } })).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["typeUrl"], ROUTE);
    assert_eq!(
        answer["resources"],
        json!([{ "@type": ROUTE, "name": "local_route", "virtualHosts": [{ "name": "local_service", "domains": ["*"] }] }])
    );
    let (_, answer) = ask_json(&server, "/v3/discovery:clusters", json!({})).await;
    assert_eq!(answer["resources"][0]["name"], "text", "in the text format of protobuf");
    let (_, answer) = ask_json(&server, "/v3/discovery:rules", json!({})).await;
    assert_eq!(answer["resources"][0]["metadata"]["name"], "ns/r");
    assert_eq!(answer["resources"][0]["body"]["match"], "true");
}

#[tokio::test]
async fn a_binary_request_has_a_binary_answer() {
    let server = Server::start().await;
    server.set(CLUSTER, "a@1 b@1");
    let request = ask("", "b").encode_to_vec();
    let answer =
        post(&server, "/v3/discovery:clusters", &[("content-type", "application/x-protobuf")], request).await;
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/x-protobuf");
    let response = DiscoveryResponse::decode(answer.into_body()).unwrap();
    assert_eq!((&*response.type_url, &*texts(&response)), (CLUSTER, "b@1"));
}

#[tokio::test]
async fn a_compressed_request_is_answered_and_one_that_is_too_long_or_broken_is_refused() {
    let server = Server::start().await;
    server.set(CLUSTER, "a@1");
    let gzip = ("content-encoding", "gzip");
    let compressed = |text: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let clusters = "/v3/discovery:clusters";
    let answer = post(&server, clusters, &[JSON, gzip], compressed(b"{}")).await;
    let json: Json = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!((answer.status(), json["resources"].as_array().unwrap().len()), (StatusCode::OK, 1));
    // 16 KB of zeros for 16 MiB and one.
    let long = post(&server, clusters, &[JSON, gzip], compressed(&vec![b' '; (16 << 20) + 1])).await;
    assert_eq!(long.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(post(&server, clusters, &[JSON, gzip], "{}").await.status(), StatusCode::BAD_REQUEST);
    let other = post(&server, clusters, &[JSON, ("content-encoding", "br")], "{}").await;
    assert_eq!(other.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

/// A value of JSON takes some hundred bytes although it has two.
#[tokio::test]
async fn what_a_request_expands_to_counts() {
    const LONGEST: usize = 64 << 10;
    let server = Server::start_bounded(LONGEST).await;
    let path = "/v3/discovery:clusters";
    let (status, _) = ask_now(&server, path, json!({ "resource_names": vec![""; 10_000] })).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    let request =
        DiscoveryRequest { resource_names: vec![String::new(); 10_000], ..DiscoveryRequest::default() };
    let answer =
        post(&server, path, &[("content-type", "application/x-protobuf")], request.encode_to_vec()).await;
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
}

/// Four times the longest message for all; a client that waits holds what it asks for alone.
#[tokio::test]
async fn what_requests_hold_is_bounded_in_sum_and_waiting_ones_hold_what_they_ask_for() {
    const LONGEST: usize = 64 << 10;
    let server = Server::start_bounded(LONGEST).await;
    server.set(CLUSTER, "a@1");
    let path = "/v3/discovery:clusters";
    let (_, answer) = ask_now(&server, path, json!({})).await;
    // Much that is not held, as the extensions of an Envoy are.
    let node = json!({ "id": "edge", "user_agent_name": "x".repeat(LONGEST - 1_000) });
    let known = json!({ "node": node, "version_info": answer["versionInfo"] });
    let mut waiting = JoinSet::new();
    for clients in 1..=20 {
        waiting.spawn(post_to(server.address, path, &[JSON], known.to_string().into()));
        server.until(|sinks| sinks.len() == clients).await;
    }
    // Bodies that do not end.
    let mut unfinished = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {LONGEST}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b' '; LONGEST - 10_000]).await.unwrap();
        unfinished.push(stream);
    }
    let full = async {
        while ask_now(&server, path, known.clone()).await.0 != StatusCode::TOO_MANY_REQUESTS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, full).await.unwrap();
    drop(unfinished);
    server.set(CLUSTER, "a@2");
    while let Some(answer) = waiting.join_next().await {
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_client_that_has_it_all_gets_304_and_one_that_refused_it_is_not_sent_it_again() {
    let server = Server::start().await;
    server.set(CLUSTER, "a@1");
    let path = "/v3/discovery:clusters";
    let (_, answer) = ask_now(&server, path, json!({})).await;
    let version = &answer["versionInfo"];
    let known = json!({ "version_info": version, "response_nonce": answer["nonce"] });
    assert_eq!(ask_now(&server, path, known).await.0, StatusCode::NOT_MODIFIED);
    let refused =
        json!({ "response_nonce": answer["nonce"], "error_detail": { "code": 3, "message": "no" } });
    assert_eq!(ask_now(&server, path, refused.clone()).await.0, StatusCode::NOT_MODIFIED);
    server.set(CLUSTER, "a@2");
    let (status, answer) = ask_now(&server, path, refused).await;
    assert_eq!((status, &answer["versionInfo"] == version), (StatusCode::OK, false));
    // What is not asked for is no news.
    let (_, answer) = ask_now(&server, path, json!({ "resource_names": ["a"] })).await;
    server.set(CLUSTER, "a@2 b@1");
    let known = json!({ "version_info": answer["versionInfo"], "resource_names": ["a"] });
    assert_eq!(ask_now(&server, path, known).await.0, StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn a_long_poll_is_held_until_something_changes() {
    let server = Server::start().await;
    server.set(CLUSTER, "a@1");
    let path = "/v3/discovery:clusters";
    let (_, answer) = ask_now(&server, path, json!({})).await;
    let known = json!({ "node": { "id": "edge" }, "version_info": answer["versionInfo"], "response_nonce": answer["nonce"] });
    let held = ask_json(&server, path, known);
    let changed = async {
        server.until(|sinks| sinks.iter().any(|sink| sink.id == "edge")).await;
        let accepted = &server.source.sinks()[0].collections["envoy.config.cluster.v3.Cluster"].accepted;
        assert_eq!(accepted.as_deref(), answer["versionInfo"].as_str());
        server.set(CLUSTER, "a@2");
    };
    let ((status, answer), ()) = tokio::join!(held, changed);
    assert_eq!((status, answer["resources"].as_array().unwrap().len()), (StatusCode::OK, 1));
    assert!(server.source.sinks().is_empty(), "listed while it waits");
}

#[tokio::test]
async fn a_client_that_waits_is_answered_when_the_source_goes_away() {
    let server = Server::start().await;
    let held = ask_json(&server, "/v3/discovery:clusters", json!({}));
    let closed = async {
        server.until(|sinks| !sinks.is_empty()).await;
        server.source.close();
    };
    assert_eq!(tokio::join!(held, closed).0.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn requests_that_are_none_are_refused_with_the_reason() {
    let server = Server::start().await;
    server.set(CLUSTER, "a@1");
    let long = "x".repeat(17 << 20);
    let clusters = "/v3/discovery:clusters";
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, Headers<'_>, &str, u16, &str); 8] = [
        ("/v3/clusters", &[JSON], "{}", 404, "write the path like /v3/discovery:clusters"),
        (
            "/v3/discovery:gadgets",
            &[JSON],
            "{}",
            400,
            "\"discovery:gadgets\" names no known type; other types need a type_url in the request",
        ),
        (clusters, &[], "{}", 415, "the content type is not application/json or application/x-protobuf"),
        (clusters, &[JSON], "{", 400, "the body is not a DiscoveryRequest"),
        (
            clusters,
            &[("content-type", "application/x-protobuf")],
            "{",
            400,
            "the body is not a DiscoveryRequest",
        ),
        (clusters, &[JSON], &long, 413, "the body has more than 16777216 bytes"),
        (
            clusters,
            &[JSON, ("origin", "https://example.com")],
            "{}",
            403,
            "requests of web pages are refused",
        ),
        (
            clusters,
            &[JSON, ("sec-fetch-site", "same-origin")],
            "{}",
            403,
            "requests of web pages are refused",
        ),
    ];
    for (path, headers, body, code, reason) in cases {
        let answer = post(&server, path, headers, body.to_owned()).await;
        let text = String::from_utf8_lossy(answer.body());
        assert!(
            answer.status() == code && text.contains(reason),
            "{path} {code}: {} {text}",
            answer.status()
        );
    }
}

#[tokio::test]
async fn the_type_url_of_a_request_is_that_of_its_path() {
    let server = Server::start().await;
    server.set(ROUTE, "a@1");
    for (path, type_url, is_its_own) in [
        ("/v3/discovery:routes", ROUTE, true),
        ("/v3/discovery:rules", "config.istio.io/v1alpha2/rule", true),
        ("/v3/discovery:ServiceEntry", ENTRY, true),
        ("/v3/discovery:clusters", ROUTE, false),
        ("/v3/discovery:routes", "type.googleapis.com/envoy.api.v2.RouteConfiguration", false),
        ("/v2/discovery:routes", ROUTE, false),
    ] {
        let request = json!({ "typeUrl": type_url }).to_string();
        let answer = post(&server, path, &[JSON, ("prefer", "wait=0")], request).await;
        assert_eq!(answer.status() == StatusCode::BAD_REQUEST, !is_its_own, "{path} for {type_url}");
        let text = String::from_utf8(answer.body().to_vec()).unwrap();
        let expected = format!("not for the type_url {type_url:?} of the request");
        assert_eq!(text.contains(&expected), !is_its_own, "{text}");
    }
}

#[tokio::test]
async fn an_unknown_type_in_a_path_gets_a_hint() {
    let server = Server::start().await;
    for (path, hint) in [("rout", "did you mean routes? "), ("zzz", "")] {
        let answer = post(&server, &format!("/v3/discovery:{path}"), &[JSON], "{}").await;
        let expected = format!(
            "\"discovery:{path}\" names no known type; {hint}other types need a type_url in the request\n"
        );
        assert_eq!((answer.status(), &**answer.body()), (StatusCode::BAD_REQUEST, expected.as_bytes()));
    }
}

#[tokio::test]
async fn a_path_where_nothing_is_served_is_404_over_http_and_unimplemented_over_grpc() {
    let server = Server::start().await;
    for path in ["/", "/v3", "/v4/discovery:clusters", "/metrics"] {
        let answer = post(&server, path, &[JSON], "{}").await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        let text = String::from_utf8(answer.body().to_vec()).unwrap();
        assert!(text.starts_with("nothing is served on this path"), "{text}");
    }
    let mut grpc = Grpc::new(server.channel().await);
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/envoy.service.load_stats.v3.LoadReportingService/X");
    let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
    let answer = grpc.unary(tonic::Request::new(ask("", "")), path, codec).await;
    assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn fetch_methods_of_every_service_answer_once() {
    let server = Server::start().await;
    let channel = server.channel().await;
    for (service, resources, message) in SERVICES {
        let url = format!("type.googleapis.com/{message}");
        server.set(&url, "a@1 b@1");
        let mut grpc = Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let path: http::uri::PathAndQuery =
            format!("/envoy.service.{service}/Fetch{resources}").parse().unwrap();
        let codec = || ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
        let answer = grpc.unary(tonic::Request::new(ask("", "a")), path.clone(), codec()).await;
        if resources == "VirtualHosts" {
            assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
            continue;
        }
        let response = answer.unwrap().into_inner();
        assert_eq!((&*response.type_url, &*texts(&response)), (&*url, "a@1"));
        grpc.ready().await.unwrap();
        let again = grpc.unary(tonic::Request::new(ack(&response, "a")), path.clone(), codec()).await;
        assert_eq!(texts(&again.unwrap().into_inner()), "a@1", "whatever the client has");
        grpc.ready().await.unwrap();
        let another = grpc.unary(tonic::Request::new(ask("another", "")), path, codec()).await;
        assert_eq!(another.unwrap_err().code(), Code::InvalidArgument);
    }
}

#[tokio::test]
async fn the_own_client_of_rest_follows_the_own_server() {
    let server = Server::start().await;
    server.set(ENTRY, "ns/a@1 ns/b@1");
    let collection = "istio/networking/v1alpha3/serviceentries".to_owned();
    let settings = SourceSettings::new("ns").collections(vec![Wanted { collection, required: true }]);
    let peer = Peer::new(server.address.to_string()).called("xds+http");
    let polling = PollOptions::default().refresh_delay(Duration::from_millis(20));
    let mut follower = StreamSource::rest(peer, node("sink", "ns", Vec::new()), polling, &settings).connect();
    for (texts, changed, removed) in [("", 2, 0), ("ns/b@1 ns/c@1", 1, 1), ("ns/c@2", 1, 1)] {
        if !texts.is_empty() {
            server.set(ENTRY, texts);
        }
        let offer = timeout(SOON, follower.changes.recv()).await.unwrap().unwrap();
        let change = offer.content();
        assert_eq!((change.resources.len(), change.removed.len()), (changed, removed), "{texts}");
        offer.accept();
    }
}
