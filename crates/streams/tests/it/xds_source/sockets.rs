//! One source over real sockets: all services beside each other.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use mixer_adapter_net::{Limit, LimitHits};
use mixer_adapter_net::{Listener, grpc::StreamMemory};
use mixer_adapter_streams::{
    mcp::source as mcp,
    proto::{
        envoy::service::discovery::v3::{
            DiscoveryRequest, DiscoveryResponse,
            aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
        istio::mcp::v1alpha1::{
            IncrementalMeshConfigRequest, MeshConfigRequest, MeshConfigResponse, RequestResources, SinkNode,
            aggregated_mesh_config_service_client::AggregatedMeshConfigServiceClient,
            resource_source_client::ResourceSourceClient,
        },
    },
    stream::{
        ListenOptions, ServiceOptions, listen_with,
        source::{Catalogue, ConfigServer, ConfigServerOptions},
    },
    xds::source as xds,
};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{
    Code, IntoStreamingRequest as _, Status, Streaming, client::Grpc, codec::CompressionEncoding,
    metadata::MetadataValue, service::Routes, transport::Channel,
};
use tonic_prost::ProstCodec;

use super::messages::*;

/// Patience of a test.
const SOON: Duration = Duration::from_secs(10);
const RULES: &str = "istio/policy/v1beta1/rules";

/// The services of one type, what their methods end in, and the type.
pub(crate) const SERVICES: [(&str, &str, &str); 9] = [
    ("cluster.v3.ClusterDiscoveryService", "Clusters", "envoy.config.cluster.v3.Cluster"),
    ("endpoint.v3.EndpointDiscoveryService", "Endpoints", "envoy.config.endpoint.v3.ClusterLoadAssignment"),
    ("listener.v3.ListenerDiscoveryService", "Listeners", "envoy.config.listener.v3.Listener"),
    ("route.v3.RouteDiscoveryService", "Routes", "envoy.config.route.v3.RouteConfiguration"),
    (
        "route.v3.ScopedRoutesDiscoveryService",
        "ScopedRoutes",
        "envoy.config.route.v3.ScopedRouteConfiguration",
    ),
    ("route.v3.VirtualHostDiscoveryService", "VirtualHosts", "envoy.config.route.v3.VirtualHost"),
    ("secret.v3.SecretDiscoveryService", "Secrets", "envoy.extensions.transport_sockets.tls.v3.Secret"),
    ("runtime.v3.RuntimeDiscoveryService", "Runtime", "envoy.service.runtime.v3.Runtime"),
    (
        "extension.v3.ExtensionConfigDiscoveryService",
        "ExtensionConfigs",
        "envoy.config.core.v3.TypedExtensionConfig",
    ),
];

pub(crate) struct Server {
    pub(crate) source: ConfigServer,
    pub(crate) address: SocketAddr,
    hits: Arc<LimitHits>,
    _stop: DropGuard,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(ConfigServerOptions::default()).await
    }

    pub(crate) async fn start_with(options: ConfigServerOptions) -> Self {
        Self::start_limited(options, xds::default_options()).await
    }

    /// Takes messages of that length in bytes at most.
    pub(crate) async fn start_bounded(longest: usize) -> Self {
        let limits = xds::default_options().max_message_size(longest);
        Self::start_limited(ConfigServerOptions::default(), limits).await
    }

    /// Takes that memory in bytes at most for the messages of all clients.
    async fn start_with_memory(bytes: usize) -> Self {
        let listening = ListenOptions::default().memory(StreamMemory::new(bytes));
        Self::start_listening(ConfigServerOptions::default(), xds::default_options(), listening).await
    }

    pub(crate) async fn start_limited(options: ConfigServerOptions, limits: ServiceOptions) -> Self {
        Self::start_listening(options, limits, ListenOptions::default()).await
    }

    async fn start_listening(
        options: ConfigServerOptions,
        limits: ServiceOptions,
        listening: ListenOptions,
    ) -> Self {
        let source = ConfigServer::new(Catalogue::default().open(), options);
        let services = mcp::mount(Routes::default(), &source, &mcp::default_options());
        let services = xds::mount(services, &source, &limits);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let hits = Arc::new(LimitHits::default());
        let listener = Listener::from(listener).count_limits(hits.clone());
        tokio::spawn(listen_with(listener, services, listening, stop.clone()));
        Self { source, address, hits, _stop: stop.drop_guard() }
    }

    pub(crate) fn set(&self, type_url: &str, texts: &str) {
        self.source.apply(&all(type_url, texts));
    }

    pub(crate) async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    /// Waits until what is known of the clients is this.
    pub(crate) async fn until(
        &self,
        holds: impl Fn(&[mixer_adapter_streams::stream::source::PeerStatus]) -> bool,
    ) {
        let poll = async {
            while !holds(&self.source.sinks()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(SOON, poll).await.unwrap();
    }
}

/// Both directions of a stream.
struct Stream<Req, Push> {
    asks: mpsc::Sender<Req>,
    pushes: Streaming<Push>,
}

impl<Req: Send + 'static, Push> Stream<Req, Push> {
    fn send(&self, request: Req) {
        self.asks.try_send(request).unwrap_or_else(|_| panic!("the stream has ended"));
    }

    async fn receive(&mut self) -> Push {
        timeout(SOON, self.pushes.message()).await.unwrap().unwrap().unwrap()
    }

    async fn ends(&mut self) -> Status {
        timeout(SOON, self.pushes.message()).await.unwrap().err().unwrap()
    }
}

/// The requests of a client; a server may wait for the first.
fn outgoing<T: Send + 'static>(first: T) -> (mpsc::Sender<T>, impl stream::Stream<Item = T> + Send) {
    let (asks, mut requests) = mpsc::channel(100);
    asks.try_send(first).unwrap_or_else(|_| unreachable!());
    (asks, stream::poll_fn(move |context| requests.poll_recv(context)).boxed())
}

async fn ads(server: &Server, first: DiscoveryRequest) -> Stream<DiscoveryRequest, DiscoveryResponse> {
    let mut client = AggregatedDiscoveryServiceClient::new(server.channel().await);
    let (asks, requests) = outgoing(first);
    let pushes = client.stream_aggregated_resources(requests).await.unwrap().into_inner();
    Stream { asks, pushes }
}

#[tokio::test]
async fn ads_serves_states_and_knows_what_was_accepted_and_refused() {
    let server = Server::start().await;
    server.set(CLUSTER, "a@1");
    server.set(ENTRY, "ns/e@1");
    let mut client = ads(&server, DiscoveryRequest { node: node("proxy"), ..ask(CLUSTER, "") }).await;
    let first = client.receive().await;
    assert_eq!((&*texts(&first), &*first.nonce), ("a@1", "1"));
    assert_eq!(first.resources[0].type_url, CLUSTER);
    assert!(first.control_plane.clone().unwrap().identifier.starts_with("mixer-adapter "));
    client.send(ack(&first, ""));
    client.send(ask(ENTRY, ""));
    let entries = client.receive().await;
    assert_eq!(texts(&entries), "ns/e@1", "wrapped");
    server.set(CLUSTER, "a@bad");
    let bad = client.receive().await;
    client.send(nack(&bad, &first.version_info, ""));
    server
        .until(|sinks| {
            let [sink] = sinks else { return false };
            let Some(watch) = sink.collections.get(CLUSTER) else { return false };
            watch.accepted.as_ref() == Some(&first.version_info)
                && watch.refused == Some((bad.version_info.clone(), "no".to_owned()))
                && sink.id == "proxy"
                && sink.annotations["cluster"] == "edge"
        })
        .await;
    server.set(CLUSTER, "a@2");
    assert_eq!(texts(&client.receive().await), "a@2");
    drop(client);
    server.until(<[_]>::is_empty).await;
}

#[tokio::test]
async fn compressed_requests_are_read_and_other_compressions_refused() {
    let server = Server::start().await;
    server.set(CLUSTER, "a@1");
    let mut client = AggregatedDiscoveryServiceClient::new(server.channel().await)
        .send_compressed(CompressionEncoding::Gzip);
    let (_asks, requests) = outgoing(ask(CLUSTER, ""));
    let mut pushes = client.stream_aggregated_resources(requests).await.unwrap().into_inner();
    assert_eq!(texts(&timeout(SOON, pushes.message()).await.unwrap().unwrap().unwrap()), "a@1");
    let mut request = outgoing(ask(CLUSTER, "")).1.into_streaming_request();
    request.metadata_mut().insert("grpc-encoding", MetadataValue::from_static("br"));
    let mut client = AggregatedDiscoveryServiceClient::new(server.channel().await);
    let refused = client.stream_aggregated_resources(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn ads_serves_changes() {
    let server = Server::start().await;
    server.set(ENTRY, "ns/a@1 ns/b@1");
    let mut client = AggregatedDiscoveryServiceClient::new(server.channel().await);
    let (asks, requests) = outgoing(subscribe(ENTRY, "", ""));
    let pushes = client.delta_aggregated_resources(requests).await.unwrap().into_inner();
    let mut client = Stream { asks, pushes };
    let push = client.receive().await;
    let names: Vec<_> = push.resources.iter().map(|resource| &*resource.name).collect();
    assert_eq!(names, ["ns/a", "ns/b"]);
    let wrapped = push.resources[0].resource.as_ref().unwrap();
    assert_eq!(wrapped.type_url, "type.googleapis.com/istio.mcp.v1alpha1.Resource");
    client.send(accepted(&push));
    server.set(ENTRY, "ns/b@1 ns/c@1");
    let push = client.receive().await;
    let names: Vec<_> = push.resources.iter().map(|resource| &*resource.name).collect();
    assert_eq!((names, &*push.removed_resources), (vec!["ns/c"], &list("ns/a")[..]));
}

#[tokio::test]
async fn each_type_has_its_own_service_and_needs_no_type_there() {
    let server = Server::start().await;
    let channel = server.channel().await;
    for (service, resources, message) in SERVICES {
        let url = format!("type.googleapis.com/{message}");
        server.set(&url, "a@1");
        let mut grpc = Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let path = format!("/envoy.service.{service}/Delta{resources}").parse().unwrap();
        let (_asks, requests) = outgoing(subscribe("", "a", ""));
        let codec = ProstCodec::default();
        let pushes = grpc.streaming(requests.into_streaming_request(), path, codec).await.unwrap();
        let mut client = Stream { asks: _asks, pushes: pushes.into_inner() };
        let push: mixer_adapter_streams::proto::envoy::service::discovery::v3::DeltaDiscoveryResponse =
            client.receive().await;
        assert_eq!((&*push.type_url, &*changes(&push)), (&*url, "a@1"));

        grpc.ready().await.unwrap();
        let path = format!("/envoy.service.{service}/Stream{resources}").parse().unwrap();
        let (asks, requests) = outgoing(ask("", "a"));
        let pushes = grpc.streaming(requests.into_streaming_request(), path, ProstCodec::default()).await;
        if resources == "VirtualHosts" {
            assert_eq!(pushes.err().unwrap().code(), Code::Unimplemented);
            continue;
        }
        let mut client = Stream { asks, pushes: pushes.unwrap().into_inner() };
        let push: DiscoveryResponse = client.receive().await;
        assert_eq!((&*push.type_url, &*texts(&push)), (&*url, "a@1"));
        client.send(DiscoveryRequest { type_url: "another".to_owned(), ..ack(&push, "a") });
        assert_eq!(client.ends().await.code(), Code::InvalidArgument);
    }
}

fn sink() -> Option<SinkNode> {
    Some(SinkNode { id: "old".to_owned(), ..SinkNode::default() })
}

fn old_names(push: &MeshConfigResponse) -> Vec<String> {
    push.resources.iter().map(|resource| resource.metadata.clone().unwrap().name).collect()
}

#[tokio::test]
async fn sinks_of_istio_1_0_and_1_1_are_served_whole_collections() {
    let server = Server::start().await;
    let rule = "type.googleapis.com/istio.policy.v1beta1.Rule";
    server.set(RULES, "ns/a@1 ns/b@1");
    for type_url in [RULES, rule] {
        let mut client = AggregatedMeshConfigServiceClient::new(server.channel().await);
        let first = MeshConfigRequest {
            sink_node: sink(),
            type_url: type_url.to_owned(),
            ..MeshConfigRequest::default()
        };
        let (asks, requests) = outgoing(first.clone());
        let pushes = client.stream_aggregated_resources(requests).await.unwrap().into_inner();
        let mut client = Stream { asks, pushes };
        let push = client.receive().await;
        assert_eq!((&*push.type_url, old_names(&push)), (type_url, list("ns/a ns/b")));
        client.send(MeshConfigRequest {
            version_info: push.version_info.clone(),
            response_nonce: push.nonce.clone(),
            ..first.clone()
        });
        server
            .until(|sinks| sinks.iter().any(|sink| sink.id == "old" && sink.collections.contains_key(RULES)))
            .await;
        server.set(RULES, "ns/a@1");
        let push = client.receive().await;
        assert_eq!(old_names(&push), list("ns/a"));
        server.set(RULES, "ns/a@1 ns/b@1");
    }
}

#[tokio::test]
async fn sinks_of_istio_1_1_are_served_changes() {
    let server = Server::start().await;
    server.set(RULES, "ns/a@1 ns/b@1");
    let mut client = AggregatedMeshConfigServiceClient::new(server.channel().await);
    let had = [("ns/gone".to_owned(), "1".to_owned())];
    let first = IncrementalMeshConfigRequest {
        sink_node: sink(),
        type_url: RULES.to_owned(),
        initial_resource_versions: had.into(),
        ..IncrementalMeshConfigRequest::default()
    };
    let (asks, requests) = outgoing(first);
    let pushes = client.incremental_aggregated_resources(requests).await.unwrap().into_inner();
    let mut client = Stream { asks, pushes };
    let push = client.receive().await;
    assert_eq!((push.resources.len(), push.removed_resources), (2, list("ns/gone")));
    client.send(IncrementalMeshConfigRequest {
        type_url: RULES.to_owned(),
        response_nonce: push.nonce,
        ..IncrementalMeshConfigRequest::default()
    });
    server.set(RULES, "ns/a@2");
    let push = client.receive().await;
    assert_eq!((push.resources.len(), push.removed_resources), (1, list("ns/b")));
}

#[tokio::test]
async fn mcp_and_xds_share_a_port_and_a_catalogue() {
    let server = Server::start().await;
    server.set(RULES, "ns/a@1");
    let mut mcp = ResourceSourceClient::new(server.channel().await);
    let ask_mcp = RequestResources { collection: RULES.to_owned(), ..RequestResources::default() };
    let (asks, requests) = outgoing(ask_mcp);
    let pushes = mcp.establish_resource_stream(requests).await.unwrap().into_inner();
    let mut mcp = Stream { asks, pushes };
    let whole = mcp.receive().await;
    let mut wrapped = ads(&server, ask("config.istio.io/v1alpha2/rule", "")).await;
    let push = wrapped.receive().await;
    assert_eq!(texts(&push), "ns/a@1");
    assert_eq!(push.version_info, whole.system_version_info);
    let mut bare = ads(&server, ask("type.googleapis.com/istio.policy.v1beta1.Rule", "")).await;
    assert_eq!(texts(&bare.receive().await), "ns/a@1");
    server.until(|sinks| sinks.len() == 3).await;
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused() {
    let options = xds::default_options().max_streams(1);
    let server = Server::start_limited(ConfigServerOptions::default(), options).await;
    server.set(CLUSTER, "a@1");
    let mut first = ads(&server, ask(CLUSTER, "")).await;
    first.receive().await;
    let mut client = AggregatedDiscoveryServiceClient::new(server.channel().await);
    let (_asks, requests) = outgoing(ask(CLUSTER, ""));
    let refused = client.stream_aggregated_resources(requests).await.err().unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}

/// The names of a request are two bytes each when they arrive, and a string each when they are decoded.
#[tokio::test]
async fn memory_for_the_messages_of_all_clients_is_limited_however_they_arrive() {
    let server = Server::start_with_memory(1 << 20).await;
    server.set(CLUSTER, "a@1");
    let mut honest = ads(&server, ask(CLUSTER, "")).await;
    let first = honest.receive().await;
    honest.send(ack(&first, ""));
    let large = DiscoveryRequest { resource_names: vec![String::new(); 100_000], ..ask(CLUSTER, "") };
    let limited = |status: Status| {
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("memory-limit"), "{status}");
    };
    limited(ads(&server, large.clone()).await.ends().await);
    let mut client = AggregatedDiscoveryServiceClient::new(server.channel().await)
        .send_compressed(CompressionEncoding::Gzip);
    let (_asks, requests) = outgoing(large.clone());
    let mut compressed = client.stream_aggregated_resources(requests).await.unwrap().into_inner();
    limited(compressed.message().await.unwrap_err());
    let mut clusters = Grpc::new(server.channel().await);
    clusters.ready().await.unwrap();
    let path = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters".parse().unwrap();
    let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
    limited(clusters.unary(tonic::Request::new(large), path, codec).await.unwrap_err());
    let mut mcp = ResourceSourceClient::new(server.channel().await);
    let versions = (0..10_000).map(|number| (number.to_string(), String::new())).collect();
    let request = RequestResources {
        collection: RULES.to_owned(),
        initial_resource_versions: versions,
        ..RequestResources::default()
    };
    let (_asks, requests) = outgoing(request);
    let mut pushes = mcp.establish_resource_stream(requests).await.unwrap().into_inner();
    limited(pushes.message().await.unwrap_err());

    server.set(CLUSTER, "a@2");
    assert_eq!(texts(&honest.receive().await), "a@2", "others are served");
}

/// Each request is short, and names that are not subscribed any more are not held.
#[tokio::test]
async fn names_that_a_stream_gathers_take_memory_while_it_holds_them() {
    let server = Server::start_with_memory(1 << 20).await;
    server.set(CLUSTER, "a@1");
    let names = |number: usize| format!("{number}{}", "x".repeat(60_000));
    let subscribed = |more: &str, less: &str| subscribe(CLUSTER, more, less);
    let mut client = AggregatedDiscoveryServiceClient::new(server.channel().await);
    let (asks, requests) = outgoing(subscribed("a", ""));
    let pushes = client.delta_aggregated_resources(requests).await.unwrap().into_inner();
    let mut stream = Stream { asks, pushes };
    let mut less = String::new();
    for number in 0..40 {
        let push = stream.receive().await;
        stream.send(accepted(&push));
        let more = names(number);
        stream.send(subscribed(&more, &less));
        less = more;
    }
    for number in 40..80 {
        stream.send(subscribed(&names(number), ""));
    }
    let ended = async {
        loop {
            if let Err(status) = stream.pushes.message().await {
                return status;
            }
        }
    };
    let status = timeout(SOON, ended).await.unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("memory-limit"), "{status}");
}

/// The memory for messages in bytes.
const MEMORY: u64 = 1 << 20;
/// What arrives of a message, twice of which is taken.
const PART: u64 = 60_000;

/// Each stream holds what has arrived of its message.
#[tokio::test]
async fn streams_with_half_sent_messages_give_way_to_others() {
    let server = Server::start_with_memory(MEMORY as usize).await;
    server.set(CLUSTER, "a@1");
    let half_sent = async |path: &str| {
        let socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let (client, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        // The content type of gRPC makes no difference.
        let request = http::Request::post(format!("http://localhost{path}")).body(()).unwrap();
        let (response, mut body) = client.send_request(request, false).unwrap();
        let announced = (16_u32 << 20).to_be_bytes();
        body.send_data([&[0][..], &announced, &[0; PART as usize]].concat().into(), false).unwrap();
        (client, response, body)
    };
    let path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
    let mut streams = Vec::new();
    for _ in 0..32 {
        streams.push(half_sent(path).await);
    }
    let limited = async {
        // All but those that fit.
        while server.hits.get(Limit::Memory) < 32 - MEMORY / PART {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, limited).await.unwrap();
    let mut honest = ads(&server, ask(CLUSTER, "")).await;
    assert_eq!(texts(&honest.receive().await), "a@1");
}
