//! The checks of servers and clients: on our own, and on some that break one rule each.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::BoxStream};
use mixer_adapter_streams::{
    SourceSettings, StreamSource, Wanted,
    certify::{Certification, Check, ClientRules, Outcome, Protocol, ServerRules, certify},
    proto::{
        envoy::service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
            aggregated_discovery_service_server::{
                AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
            },
        },
        istio::mcp::v1alpha1::{
            Metadata, RequestResources, Resource, Resources,
            resource_source_server::{ResourceSource, ResourceSourceServer},
        },
    },
    stream::{Peer, Summarize as _, Trace, Traced, listen, sink::Variant, source::ConfigServerOptions},
    xds::sink::{ApiVersion, node},
};
use tokio::{
    io::AsyncReadExt as _,
    net::TcpListener,
    sync::{Notify, mpsc},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status, Streaming, service::Routes};

use super::{messages::*, sockets::Server};

const SOON: Duration = Duration::from_secs(10);
const RULES: &str = "istio/policy/v1beta1/rules";
const CLUSTER_V2: &str = "type.googleapis.com/envoy.api.v2.Cluster";
const SOTW: Protocol = Protocol::Xds(ApiVersion::V3, Variant::Sotw);
const DELTA: Protocol = Protocol::Xds(ApiVersion::V3, Variant::Delta);

fn certification(protocol: Protocol, type_url: &str) -> Certification {
    let node = node("certify", "ns", Vec::new());
    Certification::new(protocol, vec![type_url.to_owned()], node)
        .patience(SOON)
        .silence(Duration::from_millis(300))
}

fn failures(checks: &[Check]) -> Vec<&'static str> {
    let failed = checks.iter().filter(|check| matches!(check.outcome, Outcome::Failed(_)));
    failed.map(|check| check.rule).collect()
}

#[tokio::test]
async fn the_own_server_keeps_the_rules_of_every_protocol() {
    let server = Server::start().await;
    let cluster = |name: &str| format!("'@type': {CLUSTER}\nname: {name}\n");
    let rule = |name: &str| format!("kind: rule\nmetadata: {{name: {name}}}\nspec: {{match: 'true'}}\n");
    let entry = |name: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}}}\nspec: {{hosts: [{name}.example]}}\n"
        )
    };
    let resources = [cluster("a"), cluster("b"), rule("a"), rule("b"), entry("a"), entry("b")].join("---\n");
    server.source.serve_text(&resources).unwrap();
    let peer = Peer::new(server.address.to_string());
    for (protocol, type_url, count) in [
        (Protocol::Mcp, RULES, 13),
        (Protocol::Aggregated(Variant::Sotw), RULES, 10),
        (Protocol::Aggregated(Variant::Delta), RULES, 9),
        (SOTW, ENTRY, 11),
        (DELTA, ENTRY, 12),
        (Protocol::Xds(ApiVersion::V2, Variant::Sotw), CLUSTER_V2, 11),
        (Protocol::Xds(ApiVersion::V2, Variant::Delta), CLUSTER_V2, 12),
        (Protocol::Rest, CLUSTER, 9),
    ] {
        let checks = certify(&peer, &certification(protocol, type_url)).await.unwrap();
        assert_eq!(checks.len(), count, "{protocol:?}: {checks:#?}");
        let broken: Vec<_> = checks.iter().filter(|check| check.outcome != Outcome::Passed).collect();
        assert!(broken.is_empty(), "{protocol:?}: {broken:#?}");
    }
}

/// A client without endpoints waits for them, so that there are none has to be an answer.
#[tokio::test]
async fn a_first_request_for_a_type_without_resources_is_answered() {
    let server = Server::start().await;
    server.set(CLUSTER, "a@1");
    let peer = Peer::new(server.address.to_string());
    for protocol in [SOTW, DELTA] {
        let checks = certify(&peer, &certification(protocol, ENDPOINT)).await.unwrap();
        assert_eq!(failures(&checks), [""; 0], "{protocol:?}: {checks:#?}");
    }
}

/// What a server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    NoNonce,
    SameNonce,
    NoVersion,
    OtherType,
    NameTwice,
    NoAnswer,
    RepeatsAccepted,
    RepeatsRefused,
    AnswersStale,
    IgnoresNames,
    DoesNotEnd,
    OneNonce,
    OtherBody,
    BadBody,
    NoBody,
    Incremental,
    RemovesOfAll,
}

/// A server of two clusters. One that does not end its streams reports a client that is gone.
struct Flawed(Flaw, Arc<Notify>);

#[tonic::async_trait]
impl AggregatedDiscoveryService for Flawed {
    type StreamAggregatedResourcesStream = BoxStream<'static, Result<DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream = BoxStream<'static, Result<DeltaDiscoveryResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (responses, mut outgoing) = mpsc::channel(10);
        let (flaw, gone, mut requests) = (self.0, self.1.clone(), request.into_inner());
        tokio::spawn(async move {
            let (mut nonce, mut known) = (0, Vec::new());
            while let Ok(Some(request)) = requests.message().await {
                let stale = !request.response_nonce.is_empty() && request.response_nonce != nonce.to_string();
                let renamed = request.resource_names != known;
                let due = match flaw {
                    Flaw::NoAnswer => false,
                    Flaw::AnswersStale if stale => true,
                    _ if stale => false,
                    _ if request.response_nonce.is_empty() => true,
                    Flaw::RepeatsRefused if request.error_detail.is_some() => true,
                    Flaw::RepeatsAccepted if request.error_detail.is_none() => true,
                    Flaw::NoNonce | Flaw::SameNonce => false,
                    Flaw::IgnoresNames => false,
                    _ => renamed && !request.resource_names.is_empty(),
                };
                known.clone_from(&request.resource_names);
                if !due {
                    continue;
                }
                nonce += 1;
                let mut resources = vec![cluster("a"), cluster("b")];
                if flaw == Flaw::NameTwice {
                    resources.push(cluster("a"));
                }
                let response = DiscoveryResponse {
                    version_info: if flaw == Flaw::NoVersion { String::new() } else { "1".to_owned() },
                    nonce: match flaw {
                        Flaw::NoNonce => String::new(),
                        Flaw::SameNonce => "7".to_owned(),
                        _ => nonce.to_string(),
                    },
                    type_url: if flaw == Flaw::OtherType { ROUTE.to_owned() } else { request.type_url },
                    resources,
                    ..DiscoveryResponse::default()
                };
                if flaw == Flaw::SameNonce {
                    let _ = responses.send(Ok(response.clone())).await;
                }
                let _ = responses.send(Ok(response)).await;
            }
            if flaw == Flaw::DoesNotEnd {
                responses.closed().await;
                gone.notify_one();
            }
        });
        Ok(Response::new(futures_util::stream::poll_fn(move |context| outgoing.poll_recv(context)).boxed()))
    }

    async fn delta_aggregated_resources(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("whole sets only"))
    }
}

/// A cluster of that name, by the number of its field.
fn cluster(name: &str) -> mixer_adapter_core::proto::Any {
    let value = [&[0x0a, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
    mixer_adapter_core::proto::Any { type_url: CLUSTER.to_owned(), value: value.into() }
}

async fn flawed(flaw: Flaw) -> (Peer, DropGuard) {
    serve(Flawed(flaw, Arc::default())).await
}

async fn serve(server: impl AggregatedDiscoveryService) -> (Peer, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let services = Routes::new(AggregatedDiscoveryServiceServer::new(server));
    tokio::spawn(listen(listener, services, stop.clone()));
    (Peer::new(address.to_string()), stop.drop_guard())
}

#[tokio::test]
async fn each_broken_server_fails_the_check_of_its_rule() {
    for (flaw, rule) in [
        (Flaw::NoNonce, "each response has a nonce of its own"),
        (Flaw::SameNonce, "each response has a nonce of its own"),
        (Flaw::NoVersion, "a response has a version"),
        (Flaw::OtherType, "a response has a type that was asked for"),
        (Flaw::NameTwice, "a response names each of its resources, and each once"),
        (Flaw::RepeatsAccepted, "what is acknowledged is not sent again"),
        (Flaw::RepeatsRefused, "what is rejected is not sent again"),
        (Flaw::AnswersStale, "a request with a stale nonce is not answered"),
    ] {
        let (peer, _stop) = flawed(flaw).await;
        let checks = certify(&peer, &certification(SOTW, CLUSTER)).await.unwrap();
        assert!(failures(&checks).contains(&rule), "{flaw:?}: {checks:#?}");
    }
    let (peer, _stop) = flawed(Flaw::IgnoresNames).await;
    let patient = certification(SOTW, CLUSTER).patience(Duration::from_millis(500));
    let checks = certify(&peer, &patient).await.unwrap();
    assert_eq!(failures(&checks), ["names are answered with their resources, and new names, too"]);
    let (peer, _stop) = flawed(Flaw::NoAnswer).await;
    let checks = certify(&peer, &patient).await.unwrap();
    assert_eq!(failures(&checks), ["the first request for a type is answered"]);
    let delta = certify(&peer, &certification(DELTA, CLUSTER)).await.unwrap();
    let unimplemented = Outcome::Failed("the stream ended with Unimplemented: whole sets only".to_owned());
    assert_eq!((&*delta[0].type_url, &delta[0].outcome), (CLUSTER, &unimplemented));
}

/// A server of MCP with one collection.
struct FlawedMcp(Flaw);

#[tonic::async_trait]
impl ResourceSource for FlawedMcp {
    type EstablishResourceStreamStream = BoxStream<'static, Result<Resources, Status>>;

    async fn establish_resource_stream(
        &self,
        request: Request<Streaming<RequestResources>>,
    ) -> Result<Response<Self::EstablishResourceStreamStream>, Status> {
        let (flaw, mut requests) = (self.0, request.into_inner());
        let (responses, mut outgoing) = mpsc::channel(10);
        tokio::spawn(async move {
            let mut nonce = 0;
            while let Ok(Some(request)) = requests.message().await {
                let stale = !request.response_nonce.is_empty() && request.response_nonce != nonce.to_string();
                let due = match flaw {
                    Flaw::NoAnswer => false,
                    Flaw::AnswersStale => stale || request.response_nonce.is_empty(),
                    Flaw::RepeatsRefused if request.error_detail.is_some() => true,
                    Flaw::RepeatsAccepted if request.error_detail.is_none() => !stale,
                    _ => request.response_nonce.is_empty(),
                };
                if !due {
                    continue;
                }
                nonce += 1;
                let rule = |value: &'static [u8]| mixer_adapter_core::proto::Any {
                    type_url: "type.googleapis.com/istio.policy.v1beta1.Rule".to_owned(),
                    value: value.into(),
                };
                let resource = |name: &str| Resource {
                    metadata: Some(Metadata { name: name.to_owned(), ..Metadata::default() }),
                    body: match flaw {
                        Flaw::NoBody => None,
                        Flaw::OtherBody => Some(cluster(name)),
                        Flaw::BadBody => Some(rule(b"\xff")),
                        _ => Some(rule(b"")),
                    },
                };
                let names: &[&str] = if flaw == Flaw::NameTwice { &["ns/a", "ns/a"] } else { &["ns/a"] };
                let response = Resources {
                    system_version_info: if flaw == Flaw::NoVersion { "" } else { "1" }.to_owned(),
                    nonce: match flaw {
                        Flaw::NoNonce => String::new(),
                        Flaw::OneNonce => "7".to_owned(),
                        _ => nonce.to_string(),
                    },
                    incremental: flaw == Flaw::Incremental,
                    removed_resources: match flaw {
                        Flaw::RemovesOfAll => vec!["ns/b".to_owned()],
                        _ => Vec::new(),
                    },
                    collection: if flaw == Flaw::OtherType { "other".to_owned() } else { request.collection },
                    resources: names.iter().map(|name| resource(name)).collect(),
                };
                let _ = responses.send(Ok(response)).await;
            }
        });
        Ok(Response::new(futures_util::stream::poll_fn(move |context| outgoing.poll_recv(context)).boxed()))
    }
}

#[tokio::test]
async fn each_broken_server_of_mcp_fails_the_check_of_its_rule() {
    for (flaw, rule) in [
        (Flaw::NoNonce, "each response has a nonce of its own"),
        (Flaw::NoVersion, "a response has a version"),
        (Flaw::OtherType, "a response has a type that was asked for"),
        (Flaw::NameTwice, "a response names each of its resources, and each once"),
        (Flaw::RepeatsAccepted, "what is acknowledged is not sent again"),
        (Flaw::RepeatsRefused, "what is rejected is not sent again"),
        (Flaw::AnswersStale, "a request with a stale nonce is not answered"),
        (Flaw::NoAnswer, "the first request for a type is answered"),
        (Flaw::OneNonce, "each response has a nonce of its own"),
        (Flaw::OtherBody, "each resource has a body of its type"),
        (Flaw::BadBody, "each resource has a body of its type"),
        (Flaw::NoBody, "each resource has a body of its type"),
        (Flaw::Incremental, "changes of a collection are sent only if they were requested"),
        (Flaw::RemovesOfAll, "a whole collection removes no names"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = Peer::new(listener.local_addr().unwrap().to_string());
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        tokio::spawn(listen(listener, Routes::new(ResourceSourceServer::new(FlawedMcp(flaw))), stop));
        let patience = if flaw == Flaw::NoAnswer { Duration::from_millis(500) } else { SOON };
        let mut asked = certification(Protocol::Mcp, RULES).patience(patience);
        if flaw == Flaw::OneNonce {
            asked.type_urls.push("istio/policy/v1beta1/handlers".to_owned());
        }
        let checks = certify(&peer, &asked).await.unwrap();
        let failed = checks.iter().find(|check| check.rule == rule);
        let failed = failed.filter(|check| matches!(check.outcome, Outcome::Failed(_)));
        let failed = failed.unwrap_or_else(|| panic!("{flaw:?}: {checks:#?}"));
        let last = asked.type_urls.last().unwrap();
        assert_eq!(failed.type_url, *last, "{flaw:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_and_no_result() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for protocol in [Protocol::Mcp, SOTW, Protocol::Rest] {
        let peer = Peer::new(free.to_string()).called("xds");
        let error = certify(&peer, &certification(protocol, CLUSTER)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("xds://{free}: cannot connect: Connection refused")), "{text}");
    }
}

/// A server that is open and says nothing, and one that goes on when its client is gone: the checks end, and so do their connections.
#[tokio::test]
async fn a_server_that_does_not_answer_or_does_not_end_holds_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = Peer::new(listener.local_addr().unwrap().to_string());
    let hurried = certification(SOTW, CLUSTER).patience(Duration::from_millis(300));
    let accepted = async {
        // The first connection is to see whether somebody listens.
        listener.accept().await.unwrap();
        listener.accept().await.unwrap().0
    };
    let (checks, mut silent) = tokio::join!(certify(&peer, &hurried), accepted);
    assert_eq!(failures(&checks.unwrap()), ["the first request for a type is answered"]);
    let mut rest = Vec::new();
    timeout(SOON, silent.read_to_end(&mut rest)).await.unwrap().unwrap();

    let ended = Arc::new(Notify::new());
    let (peer, _stop) = serve(Flawed(Flaw::DoesNotEnd, ended.clone())).await;
    certify(&peer, &hurried).await.unwrap();
    timeout(SOON, ended.notified()).await.unwrap();
}

/// The stream with Envoy that docs/behaviour/xds.md shows: a good client, which refuses one response.
#[test]
fn the_recorded_envoy_breaks_no_rule() {
    let response = |version: &str, nonce: &str| DiscoveryResponse {
        version_info: version.to_owned(),
        nonce: nonce.to_owned(),
        type_url: ROUTE.to_owned(),
        ..DiscoveryResponse::default()
    };
    let mut client = ClientRules::default();
    let mut server = ServerRules::new(SOTW);
    let names = "front_routes";
    let request = |client: &mut ClientRules, server: &mut ServerRules, request: DiscoveryRequest| {
        server.sent(&request.shorthand());
        assert_eq!(client.received(&request.shorthand(), ROUTE), []);
    };
    let first = DiscoveryRequest { node: node_of("envoy"), ..ask(ROUTE, names) };
    request(&mut client, &mut server, first);
    for (version, nonce) in [("1", "3"), ("2", "4")] {
        let response = response(version, nonce);
        client.sent(&response.shorthand());
        assert_eq!(server.received(&response.shorthand()), []);
        request(&mut client, &mut server, ack(&response, names));
    }
    let faulty = response("666", "5");
    client.sent(&faulty.shorthand());
    assert_eq!(server.received(&faulty.shorthand()), []);
    request(&mut client, &mut server, nack(&faulty, "2", names));
    assert_eq!(client.unanswered(), []);
}

fn node_of(id: &str) -> Option<mixer_adapter_streams::proto::envoy::config::core::v3::Node> {
    super::messages::node(id)
}

#[tokio::test]
async fn a_client_that_breaks_a_rule_is_listed_with_it_and_a_good_one_with_none() {
    let server = Server::start_with(ConfigServerOptions::default().certify(true)).await;
    server.set(CLUSTER, "a@1");
    let mut client = AggregatedDiscoveryServiceClient::new(server.channel().await);
    let (requests, mut sent) = mpsc::channel(10);
    requests.try_send(ask(CLUSTER, "")).unwrap();
    let sent = futures_util::stream::poll_fn(move |context| sent.poll_recv(context));
    let mut responses = client.stream_aggregated_resources(sent).await.unwrap().into_inner();
    let push = timeout(SOON, responses.message()).await.unwrap().unwrap().unwrap();
    requests.try_send(DiscoveryRequest { version_info: "another".to_owned(), ..ack(&push, "") }).unwrap();
    server
        .until(|sinks| {
            let rules: Vec<_> =
                sinks.iter().flat_map(|sink| &sink.violations).map(|found| found.rule).collect();
            rules
                == [
                    "the first request of a stream says who asks",
                    "an acknowledgement has the version of its response",
                ]
        })
        .await;
    drop((requests, responses));
    server.until(<[_]>::is_empty).await;
    let mut follower = follow(&server, Trace::default());
    let offer = timeout(SOON, follower.changes.recv()).await.unwrap().unwrap();
    offer.accept();
    server.until(|sinks| sinks.iter().any(|sink| sink.collections.contains_key(CLUSTER))).await;
    assert!(server.source.sinks().iter().all(|sink| sink.violations.is_empty()));
}

fn follow(server: &Server, trace: Trace) -> mixer_adapter_streams::Subscription {
    let collection = "envoy.config.cluster.v3.Cluster".to_owned();
    let settings = SourceSettings::new("ns").collections(vec![Wanted { collection, required: true }]);
    let peer = Peer::new(server.address.to_string()).called("xds");
    StreamSource::xds(peer, Variant::Sotw, node("follower", "ns", Vec::new()), &settings)
        .tracing(trace)
        .connect()
}

#[tokio::test]
async fn a_trace_shows_requests_responses_and_answers_in_the_shorthand_of_the_document() {
    let server = Server::start().await;
    server
        .source
        .serve_text("'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: foo\n")
        .unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let shown = lines.clone();
    let trace = Trace::new(move |traced| {
        let line = match traced {
            Traced::Sent(message) => format!("-> {message}"),
            Traced::Received(message) => format!("<- {message}"),
            _ => return,
        };
        shown.lock().unwrap().push(line);
    });
    let mut follower = follow(&server, trace);
    timeout(SOON, follower.changes.recv()).await.unwrap().unwrap().accept();
    server.until(|sinks| sinks.iter().any(|sink| sink.collections.contains_key(CLUSTER))).await;
    let version = server.source.catalogue().snapshot("envoy.config.cluster.v3.Cluster").unwrap().version();
    let lines = lines.lock().unwrap();
    assert_eq!(
        lines[..],
        [
            "-> DiscoveryRequest (V=,R=,N=,T=CDS)".to_owned(),
            format!("<- DiscoveryResponse (V={version},R=foo,N=1,T=CDS)"),
            format!("-> DiscoveryRequest (V={version},R=,N=1,T=CDS)"),
        ]
    );
}
