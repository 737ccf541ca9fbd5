//! Version 2 of Envoy's API, asked for by a client whose messages are written from the numbers of its fields.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream};
use http::uri::PathAndQuery;
use mixer_adapter_core::proto::{Any, Status};
use mixer_adapter_streams::{
    SourceSettings, StreamSource, Wanted,
    stream::{
        Peer,
        metrics::{SOURCE, V2Requests},
        sink::Variant,
        source::ConfigServerOptions,
    },
    xds::sink::{ApiVersion, node},
};
use prost::Message;
use serde_json::{Value as Json, json};
use tokio::{sync::mpsc, time::timeout};
use tonic::{Code, IntoStreamingRequest as _, Streaming, client::Grpc};
use tonic_prost::ProstCodec;

use super::{
    rest::{SOON, ask_json},
    sockets::Server,
};

/// `envoy.api.v2.core.Node`.
#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    cluster: String,
    #[prost(string, tag = "5")]
    build_version: String,
}

/// `envoy.api.v2.DiscoveryRequest`.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, tag = "1")]
    version_info: String,
    #[prost(message, tag = "2")]
    node: Option<Node>,
    #[prost(string, repeated, tag = "3")]
    resource_names: Vec<String>,
    #[prost(string, tag = "4")]
    type_url: String,
    #[prost(string, tag = "5")]
    response_nonce: String,
    #[prost(message, tag = "6")]
    error_detail: Option<Status>,
}

/// `envoy.api.v2.DiscoveryResponse`.
#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(string, tag = "1")]
    version_info: String,
    #[prost(message, repeated, tag = "2")]
    resources: Vec<Any>,
    #[prost(string, tag = "4")]
    type_url: String,
    #[prost(string, tag = "5")]
    nonce: String,
}

/// `envoy.api.v2.DeltaDiscoveryRequest`, which was called `IncrementalDiscoveryRequest` before.
#[derive(Clone, PartialEq, Message)]
struct DeltaRequest {
    #[prost(message, tag = "1")]
    node: Option<Node>,
    #[prost(string, tag = "2")]
    type_url: String,
    #[prost(string, repeated, tag = "3")]
    subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    unsubscribe: Vec<String>,
    #[prost(btree_map = "string, string", tag = "5")]
    versions: BTreeMap<String, String>,
    #[prost(string, tag = "6")]
    response_nonce: String,
}

/// `envoy.api.v2.DeltaDiscoveryResponse`.
#[derive(Clone, PartialEq, Message)]
struct DeltaResponse {
    #[prost(message, repeated, tag = "2")]
    resources: Vec<DeltaResource>,
    #[prost(string, tag = "5")]
    nonce: String,
    #[prost(string, repeated, tag = "6")]
    removed: Vec<String>,
}

/// `envoy.api.v2.Resource`.
#[derive(Clone, PartialEq, Message)]
struct DeltaResource {
    #[prost(message, tag = "2")]
    resource: Option<Any>,
    #[prost(string, tag = "3")]
    name: String,
}

/// `envoy.api.v2.Cluster`.
#[derive(Clone, PartialEq, Message)]
struct Cluster {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "6")]
    lb_policy: i32,
}

/// `envoy.api.v2.Listener`.
#[derive(Clone, PartialEq, Message)]
struct Listener {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    filter_chains: Vec<FilterChain>,
}

/// `envoy.api.v2.listener.FilterChain`.
#[derive(Clone, PartialEq, Message)]
struct FilterChain {
    #[prost(message, repeated, tag = "3")]
    filters: Vec<Filter>,
}

/// `envoy.api.v2.listener.Filter`.
#[derive(Clone, PartialEq, Message)]
struct Filter {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, tag = "4")]
    typed_config: Option<Any>,
}

/// `envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager`.
#[derive(Clone, PartialEq, Message)]
struct Manager {
    #[prost(string, tag = "2")]
    stat_prefix: String,
    #[prost(message, repeated, tag = "5")]
    http_filters: Vec<Filter>,
}

/// `envoy.api.v2.RouteConfiguration`.
#[derive(Clone, PartialEq, Message)]
struct Routes {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    virtual_hosts: Vec<VirtualHost>,
}

/// `envoy.api.v2.route.VirtualHost`.
#[derive(Clone, PartialEq, Message)]
struct VirtualHost {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, repeated, tag = "2")]
    domains: Vec<String>,
}

const CLUSTER: &str = "type.googleapis.com/envoy.api.v2.Cluster";
const LISTENER: &str = "type.googleapis.com/envoy.api.v2.Listener";
const ROUTE: &str = "type.googleapis.com/envoy.api.v2.RouteConfiguration";
const ADS: &str = "/envoy.service.discovery.v2.AggregatedDiscoveryService/";

/// What is served, in version 3.
const RESOURCES: &str = "
'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster
name: shop
lb_policy: MAGLEV
---
'@type': type.googleapis.com/envoy.config.listener.v3.Listener
name: front
filter_chains:
- filters:
  - name: envoy.filters.network.http_connection_manager
    typed_config:
      '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      stat_prefix: in
      http_filters:
      - name: envoy.filters.http.router
        typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
---
'@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration
name: local_route
virtual_hosts: [{name: local_service, domains: ['*']}]
";

/// A stream of a method.
struct Client<Q, P> {
    requests: mpsc::Sender<Q>,
    responses: Streaming<P>,
}

impl<Q: Message + 'static, P: Message + Default + 'static> Client<Q, P> {
    async fn open(server: &Server, method: &str, first: Q) -> Result<Self, tonic::Status> {
        let mut grpc = Grpc::new(server.channel().await);
        grpc.ready().await.unwrap();
        let (requests, mut sent) = mpsc::channel(10);
        requests.try_send(first).unwrap_or_else(|_| unreachable!());
        let sent = stream::poll_fn(move |context| sent.poll_recv(context)).boxed();
        let path: PathAndQuery = method.parse().unwrap();
        let responses = grpc.streaming(sent.into_streaming_request(), path, ProstCodec::default()).await?;
        Ok(Self { requests, responses: responses.into_inner() })
    }

    fn send(&self, request: Q) {
        self.requests.try_send(request).unwrap_or_else(|_| panic!("the stream has ended"));
    }

    async fn receive(&mut self) -> Result<P, tonic::Status> {
        Ok(timeout(SOON, self.responses.message()).await.unwrap()?.unwrap())
    }
}

fn ask(type_url: &str, node: &str) -> Request {
    let build_version = "5d25f466c3410c0dfa735d7d4358beb76b2da507/1.9.0/Clean/RELEASE/BoringSSL".to_owned();
    let node = Node { id: node.to_owned(), cluster: "edge".to_owned(), build_version };
    Request { type_url: type_url.to_owned(), node: Some(node), ..Request::default() }
}

async fn serving(options: ConfigServerOptions) -> Server {
    let server = Server::start_with(options).await;
    server.source.serve_text(RESOURCES).unwrap();
    server
}

/// The example of the document of 2018, with an address in place of its two placeholders.
fn bootstrap(server: &Server) -> Json {
    let text = format!(
        "
node:
  id: bootstrap-v2
dynamic_resources:
  cds_config: {{ads: {{}}}}
  lds_config: {{ads: {{}}}}
  ads_config:
    api_type: GRPC
    grpc_services:
      envoy_grpc:
        cluster_name: ads_cluster
static_resources:
  clusters:
  - name: ads_cluster
    connect_timeout: {{ seconds: 5 }}
    type: STATIC
    hosts:
    - socket_address:
        address: {}
        port_value: {}
    lb_policy: ROUND_ROBIN
    http2_protocol_options: {{}}
",
        server.address.ip(),
        server.address.port()
    );
    serde_saphyr::from_str(&text).unwrap()
}

#[tokio::test]
async fn the_bootstrap_of_the_document_works_as_printed() {
    let server = serving(ConfigServerOptions::default()).await;
    let bootstrap = bootstrap(&server);
    let dynamic = &bootstrap["dynamic_resources"];
    assert_eq!(
        (&dynamic["cds_config"], &dynamic["lds_config"]),
        (&json!({ "ads": {} }), &json!({ "ads": {} }))
    );
    assert_eq!(dynamic["ads_config"]["api_type"], "GRPC");
    let name = &dynamic["ads_config"]["grpc_services"]["envoy_grpc"]["cluster_name"];
    let clusters = bootstrap["static_resources"]["clusters"].as_array().unwrap();
    let cluster = clusters.iter().find(|cluster| cluster["name"] == *name).unwrap();
    let address = &cluster["hosts"][0]["socket_address"];
    assert_eq!(address["port_value"], server.address.port());
    let node = bootstrap["node"]["id"].as_str().unwrap();

    let mut client: Client<Request, Response> =
        Client::open(&server, &format!("{ADS}StreamAggregatedResources"), ask(CLUSTER, node)).await.unwrap();
    let clusters = client.receive().await.unwrap();
    assert_eq!((&*clusters.type_url, &*clusters.resources[0].type_url), (CLUSTER, CLUSTER));
    // MAGLEV is 5 in version 2.
    let expected = Cluster { name: "shop".to_owned(), lb_policy: 5 };
    assert_eq!(Cluster::decode(&*clusters.resources[0].value).unwrap(), expected);
    let ack = |response: &Response| Request {
        version_info: response.version_info.clone(),
        response_nonce: response.nonce.clone(),
        ..ask(&response.type_url, node)
    };
    client.send(ack(&clusters));
    client.send(ask(LISTENER, node));
    let listeners = client.receive().await.unwrap();
    let listener = Listener::decode(&*listeners.resources[0].value).unwrap();
    let manager = listener.filter_chains[0].filters[0].typed_config.clone().unwrap();
    assert_eq!(
        manager.message_name(),
        "envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager"
    );
    let manager = Manager::decode(&*manager.value).unwrap();
    let router = manager.http_filters[0].typed_config.clone().unwrap();
    assert_eq!(router.message_name(), "envoy.config.filter.http.router.v2.Router");
    client.send(ack(&listeners));
    client.send(Request { resource_names: vec!["local_route".to_owned()], ..ask(ROUTE, node) });
    let routes = client.receive().await.unwrap();
    let routes = Routes::decode(&*routes.resources[0].value).unwrap();
    let host = VirtualHost { name: "local_service".to_owned(), domains: vec!["*".to_owned()] };
    assert_eq!(routes, Routes { name: "local_route".to_owned(), virtual_hosts: vec![host] });

    // A change of a resource of version 3 is one in version 2.
    server.source.serve_text(&RESOURCES.replace("MAGLEV", "RANDOM")).unwrap();
    let clusters = client.receive().await.unwrap();
    assert_eq!(Cluster::decode(&*clusters.resources[0].value).unwrap().lb_policy, 3);
    // And it is shown who asks, by version 2 and with which Envoy.
    let sinks = server.source.sinks();
    let sink = sinks.iter().find(|sink| sink.id == node).unwrap();
    assert!(sink.annotations["user_agent_version"].contains("/1.9.0/"));
    assert!(sink.collections[LISTENER].accepted.is_some());
}

#[tokio::test]
async fn stream_routes_of_version_2_serves_its_type_alone() {
    let server = serving(ConfigServerOptions::default()).await;
    let method = "/envoy.api.v2.RouteDiscoveryService/StreamRoutes";
    let first = Request { resource_names: vec!["local_route".to_owned()], ..ask("", "routes-v2") };
    let mut client: Client<Request, Response> = Client::open(&server, method, first).await.unwrap();
    assert_eq!(client.receive().await.unwrap().resources[0].type_url, ROUTE);
    client.send(ask(CLUSTER, "routes-v2"));
    assert_eq!(client.receive().await.unwrap_err().code(), Code::InvalidArgument);
}

/// The methods were called `Incremental...` before they were `Delta...`.
#[tokio::test]
async fn changes_are_served_in_version_2_by_both_names_of_the_methods() {
    let server = serving(ConfigServerOptions::default()).await;
    for method in ["DeltaAggregatedResources", "IncrementalAggregatedResources"] {
        let first = DeltaRequest { type_url: CLUSTER.to_owned(), ..DeltaRequest::default() };
        let mut client: Client<DeltaRequest, DeltaResponse> =
            Client::open(&server, &format!("{ADS}{method}"), first).await.unwrap();
        let response = client.receive().await.unwrap();
        assert_eq!(response.resources[0].name, "shop");
        assert_eq!(response.resources[0].resource.as_ref().unwrap().type_url, CLUSTER);
    }
}

#[tokio::test]
async fn post_v2_discovery_routes_answers_in_version_2() {
    let server = serving(ConfigServerOptions::default()).await;
    let request = json!({ "node": { "id": "rest-v2", "build_version": "x/1.9.0/y" }, "resource_names": ["local_route"] });
    let (status, answer) = ask_json(&server, "/v2/discovery:routes", request).await;
    assert_eq!((status.as_u16(), &answer["typeUrl"]), (200, &json!(ROUTE)));
    let hosts = json!([{ "name": "local_service", "domains": ["*"] }]);
    assert_eq!(
        answer["resources"],
        json!([{ "@type": ROUTE, "name": "local_route", "virtualHosts": hosts }])
    );
    let mut grpc = Grpc::new(server.channel().await);
    grpc.ready().await.unwrap();
    let path: PathAndQuery = "/envoy.api.v2.RouteDiscoveryService/FetchRoutes".parse().unwrap();
    let codec = ProstCodec::<Request, Response>::default();
    let fetched = grpc.unary(tonic::Request::new(ask("", "fetch-v2")), path, codec).await.unwrap();
    assert_eq!(fetched.into_inner().resources[0].type_url, ROUTE);
}

/// Left out, a matcher could let everybody in.
#[tokio::test]
async fn a_resource_that_version_2_cannot_hold_is_not_served_and_listed_with_the_reason() {
    let server = serving(ConfigServerOptions::default()).await;
    let newer = "
---
'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster
name: newer
lb_policy: LOAD_BALANCING_POLICY_CONFIG
load_balancing_policy: {policies: [{typed_extension_config: {name: x}}]}
";
    server.source.serve_text(&format!("{RESOURCES}{newer}")).unwrap();
    let clusters = "envoy.config.cluster.v3.Cluster";
    assert_eq!(server.source.catalogue().snapshot(clusters).unwrap().not_in_v2(), [], "nobody asked yet");
    let method = format!("{ADS}StreamAggregatedResources");
    let mut client: Client<Request, Response> =
        Client::open(&server, &method, ask(CLUSTER, "limits-v2")).await.unwrap();
    let response = client.receive().await.unwrap();
    assert_eq!(response.resources.len(), 1);
    let catalogue = server.source.catalogue();
    let missing = catalogue.snapshot(clusters).unwrap().not_in_v2();
    let [("newer", reason)] = &missing[..] else { panic!("{missing:?}") };
    assert!(
        reason.contains("load_balancing_policy.policies[0].typed_extension_config (no such field)"),
        "{reason}"
    );
}

#[tokio::test]
async fn requests_for_version_2_are_counted_by_type_and_client_also_where_it_is_turned_off() {
    let server = serving(ConfigServerOptions::default().v2(false)).await;
    let method = format!("{ADS}StreamAggregatedResources");
    let mut client: Client<Request, Response> =
        Client::open(&server, &method, ask(CLUSTER, "counted-v2")).await.unwrap();
    let refused = client.receive().await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (
            Code::Unimplemented,
            "version 2 of Envoy's API is turned off here; ask for envoy.config.cluster.v3.Cluster by version 3"
        )
    );
    let (status, _) =
        ask_json(&server, "/v2/discovery:clusters", json!({ "node": { "id": "counted-v2" } })).await;
    assert_eq!(status.as_u16(), 410);
    let requests = SOURCE.v2_requests().into_iter().find(|requests| requests.client == "counted-v2");
    let counted = V2Requests { type_url: CLUSTER.to_owned(), client: "counted-v2".to_owned(), requests: 2 };
    assert_eq!(requests, Some(counted));
    let newer = "/v3/discovery:clusters";
    assert_eq!(ask_json(&server, newer, json!({})).await.0.as_u16(), 200);
}

#[tokio::test]
async fn files_in_version_2_are_served_in_both_versions() {
    let server = Server::start().await;
    let older = "
'@type': type.googleapis.com/envoy.api.v2.Cluster
name: shop
connect_timeout: 5s
type: STATIC
hosts: [{socket_address: {address: 127.0.0.1, port_value: 80}}]
";
    server.source.serve_text(older).unwrap();
    for (path, message) in [
        ("/v3/discovery:clusters", "envoy.config.cluster.v3.Cluster"),
        ("/v2/discovery:clusters", "envoy.api.v2.Cluster"),
    ] {
        let (_, answer) = ask_json(&server, path, json!({ "node": { "id": "files-v2" } })).await;
        let cluster = &answer["resources"][0];
        assert_eq!(cluster["@type"], format!("type.googleapis.com/{message}"));
        let address = &cluster["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"];
        assert_eq!(address["socketAddress"]["portValue"], 80);
    }
    let faults =
        server.source.serve_text(&older.replace("hosts:", "extension_protocol_options: {x: {}}\nhosts:"));
    let fault = faults.unwrap_err()[0].to_string();
    assert!(fault.contains("cannot hold extension_protocol_options (no such field)"), "{fault}");
}

#[tokio::test]
async fn the_own_client_follows_a_server_in_version_2() {
    let server = serving(ConfigServerOptions::default()).await;
    let collection = "envoy.api.v2.Cluster".to_owned();
    let settings = SourceSettings::new("ns").collections(vec![Wanted { collection, required: true }]);
    for variant in [Variant::Sotw, Variant::Delta] {
        let peer = Peer::new(server.address.to_string()).called("xds");
        let source = StreamSource::xds(peer, variant, node("follower-v2", "ns", Vec::new()), &settings);
        let mut follower = source.in_version(ApiVersion::V2).connect();
        let offer = timeout(SOON, follower.changes.recv()).await.unwrap().unwrap();
        let change = offer.content();
        assert_eq!(change.resources[0].body.type_url, CLUSTER);
        assert_eq!(change.resources[0].spec().unwrap()["lbPolicy"], "MAGLEV");
        offer.accept();
    }
}
