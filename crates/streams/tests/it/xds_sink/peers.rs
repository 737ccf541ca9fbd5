//! Over real sockets: servers that behave as those in use do.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, future::BoxFuture, stream::BoxStream};
use mixer_adapter_config::Offer;
use mixer_adapter_streams::{
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
            aggregated_discovery_service_server::{
                AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
            },
        },
    },
    stream::{
        DialOptions, Peer, RawChange, listen,
        sink::{Sink, SinkOptions, Variant},
    },
    xds::sink::{ApiVersion, dial, node},
};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status, Streaming, service::Routes};

use super::{client::options, messages::*};

const SOON: Duration = Duration::from_secs(10);
const SERVICE_ENTRIES: &str = "istio/networking/v1alpha3/serviceentries";
const OLD: &str = "networking.istio.io/v1alpha3/ServiceEntry";
const NEW: &str = "networking.istio.io/v1/ServiceEntry";

/// One stream with a client.
struct Conversation<Req, Resp> {
    requests: Streaming<Req>,
    responses: mpsc::Sender<Result<Resp, Status>>,
}

impl<Req, Resp> Conversation<Req, Resp> {
    async fn receive(&mut self) -> Option<Req> {
        timeout(SOON, self.requests.message()).await.unwrap().ok().flatten()
    }

    async fn send(&self, response: Resp) {
        let _ = self.responses.send(Ok(response)).await;
    }
}

type Whole = Conversation<DiscoveryRequest, DiscoveryResponse>;
type Changes = Conversation<DeltaDiscoveryRequest, DeltaDiscoveryResponse>;
type Script<C> = Box<dyn Fn(usize, C) -> BoxFuture<'static, Status> + Send + Sync>;

/// A server that runs a script for each stream, given the number of earlier streams.
struct Scripted {
    whole: Script<Whole>,
    changes: Script<Changes>,
    streams: Arc<AtomicUsize>,
}

fn converse<Req: 'static, Resp: Send + 'static>(
    script: &Script<Conversation<Req, Resp>>,
    before: usize,
    requests: Streaming<Req>,
) -> BoxStream<'static, Result<Resp, Status>> {
    let (responses, mut outgoing) = mpsc::channel(1);
    let script = script(before, Conversation { requests, responses: responses.clone() });
    tokio::spawn(async move {
        let status = script.await;
        if status.code() != tonic::Code::Ok {
            let _ = responses.send(Err(status)).await;
        }
    });
    futures_util::stream::poll_fn(move |context| outgoing.poll_recv(context)).boxed()
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Scripted {
    type StreamAggregatedResourcesStream = BoxStream<'static, Result<DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream = BoxStream<'static, Result<DeltaDiscoveryResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let before = self.streams.fetch_add(1, SeqCst);
        Ok(Response::new(converse(&self.whole, before, request.into_inner())))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let before = self.streams.fetch_add(1, SeqCst);
        Ok(Response::new(converse(&self.changes, before, request.into_inner())))
    }
}

/// A sink that follows a server.
struct Subscription {
    changes: mpsc::Receiver<Offer<RawChange>>,
    sink: Sink,
    streams: Arc<AtomicUsize>,
    _stop: [DropGuard; 2],
}

impl Subscription {
    async fn start(variant: Variant, server: Scripted, options: SinkOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let streams = server.streams.clone();
        let (serving, dialing) = (CancellationToken::new(), CancellationToken::new());
        let routes = Routes::new(AggregatedDiscoveryServiceServer::new(server));
        tokio::spawn(listen(listener, routes, serving.clone()));
        let (sink, changes) = Sink::start(options, None);
        let eager = DialOptions::default()
            .first_wait(Duration::from_millis(10))
            .longest_wait(Duration::from_millis(50));
        let server = Peer::new(address.to_string()).called("xds");
        tokio::spawn(dial(
            sink.clone(),
            server,
            (ApiVersion::V3, variant),
            node("pod", "ns", vec![]),
            eager,
            dialing.clone(),
        ));
        Self { changes, sink, streams, _stop: [serving.drop_guard(), dialing.drop_guard()] }
    }

    async fn whole<F>(
        collections: &[&str],
        script: impl Fn(usize, Whole) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Status> + Send + 'static,
    {
        let server = Scripted {
            whole: Box::new(move |before, conversation| Box::pin(script(before, conversation))),
            changes: Box::new(|_, _| Box::pin(async { Status::unimplemented("") })),
            streams: Arc::default(),
        };
        Self::start(Variant::Sotw, server, options(Variant::Sotw.mode(), collections)).await
    }

    async fn delta<F>(
        collections: &[&str],
        script: impl Fn(usize, Changes) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Status> + Send + 'static,
    {
        let server = Scripted {
            whole: Box::new(|_, _| Box::pin(async { Status::unimplemented("") })),
            changes: Box::new(move |before, conversation| Box::pin(script(before, conversation))),
            streams: Arc::default(),
        };
        Self::start(Variant::Delta, server, options(Variant::Delta.mode(), collections)).await
    }

    /// The next change, accepted: full or not, names changed, names removed.
    async fn accept(&mut self) -> (bool, Vec<String>, Vec<String>) {
        let offer = timeout(SOON, self.changes.recv()).await.unwrap().unwrap();
        let change = offer.content();
        let named = change.resources.iter().map(|resource| resource.name.clone()).collect();
        let told = (change.full, named, change.removed.clone());
        offer.accept();
        told
    }
}

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// istiod: an id in its form and the generator `api` are needed; each type is answered, unknown ones with nothing; any change pushes
/// every type again, without waiting for answers; neither versions nor labels.
#[tokio::test]
async fn istiod_is_followed() {
    let istiod = |_, mut client: Whole| async move {
        let push = |url: &str, nonce: &str, names: &[&str]| {
            let resources: Vec<_> = names.iter().map(|name| format!("{name}@")).collect();
            whole(url, nonce, &resources.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let mut asked = Vec::new();
        while asked.len() < 3 {
            let request = client.receive().await.unwrap();
            let id = request.node.unwrap_or_default().id;
            let parts: Vec<_> = id.split('~').collect();
            if parts.len() != 4 || parts[0] != "sidecar" || parts[1].parse::<std::net::IpAddr>().is_err() {
                return Status::invalid_argument(format!("invalid node id {id:?}"));
            }
            if request.response_nonce.is_empty() {
                // Before 1.24 it stored v1alpha3.
                let names: &[&str] = if request.type_url == OLD { &["ns/a"] } else { &[] };
                client.send(push(&request.type_url, &format!("1-{}", request.type_url), names)).await;
                asked.push(request.type_url);
            }
        }
        for round in ["2", "3"] {
            for url in &asked {
                let names: &[&str] = if url == OLD { &["ns/a", "ns/b"] } else { &[] };
                client.send(push(url, &format!("{round}-{url}"), names)).await;
            }
        }
        while let Some(request) = client.receive().await {
            assert!(request.error_detail.is_none(), "{request:?}");
            if request.type_url == OLD && request.response_nonce.starts_with('3') {
                client.send(push(OLD, "4", &["ns/b"])).await;
            }
        }
        Status::ok("")
    };
    let mut following = Subscription::whole(&[RULES, SERVICE_ENTRIES], istiod).await;
    let mut all = Vec::new();
    while all.last().is_none_or(|last: &(bool, Vec<String>, Vec<String>)| last.2.is_empty()) {
        all.push(following.accept().await);
    }
    assert!(all.contains(&(true, vec![], vec![])), "no rules");
    assert!(all.contains(&(true, list(&["ns/a"]), vec![])));
    assert!(all.contains(&(false, list(&["ns/b"]), vec![])));
    assert_eq!(all.last(), Some(&(false, vec![], list(&["ns/a"]))));
}

/// Nacos, whole sets: one type, its nonces random, pushes without waiting; other types of Istio are empty, the rest never answered.
#[tokio::test]
async fn nacos_is_followed() {
    let nacos = |_, mut client: Whole| async move {
        while let Some(request) = client.receive().await {
            let url = request.type_url.as_str();
            match url {
                OLD if request.response_nonce.is_empty() => {
                    client.send(whole(url, "6f1c", &["nacos/svc.default-group.public@1"])).await;
                    client.send(whole(url, "09ab", &["nacos/svc.default-group.public@1", "nacos/b@1"])).await;
                }
                NEW if request.response_nonce.is_empty() => client.send(whole(url, "77d0", &[])).await,
                _ => {}
            }
        }
        Status::ok("")
    };
    let mut following = Subscription::whole(&[SERVICE_ENTRIES, "k8s/v1alpha1/MeshConfig"], nacos).await;
    assert_eq!(following.accept().await, (true, list(&["nacos/svc.default-group.public"]), vec![]));
    assert_eq!(following.accept().await, (false, list(&["nacos/b"]), vec![]));
}

/// Nacos, changes: bare, nameless, everything each time.
#[tokio::test]
async fn the_changes_of_nacos_are_whole_sets() {
    let nacos = |_, mut client: Changes| async move {
        let entry = |text: &'static str| Resource {
            resource: Some(any("istio.networking.v1alpha3.ServiceEntry", text)),
            ..Resource::default()
        };
        let push = |nonce: &str, entries: &[&'static str]| DeltaDiscoveryResponse {
            resources: entries.iter().map(|text| entry(text)).collect(),
            ..changes(OLD, nonce, &[], &[])
        };
        while let Some(request) = client.receive().await {
            match (request.type_url.as_str(), request.response_nonce.as_str()) {
                (NEW, "") => client.send(changes(NEW, "x", &[], &[])).await,
                (OLD, "") => client.send(push("y", &["a", "b"])).await,
                (OLD, "y") => client.send(push("z", &["b", "c"])).await,
                _ => {}
            }
        }
        Status::ok("")
    };
    let mut following = Subscription::delta(&[SERVICE_ENTRIES], nacos).await;
    let (full, first, _) = following.accept().await;
    assert_eq!((full, first.len()), (true, 2));
    let (full, added, removed) = following.accept().await;
    assert_eq!((full, added.len(), removed.len()), (false, 1, 1));
}

/// A stream that breaks is opened again, and what was deleted meanwhile is gone, in either variant.
#[tokio::test]
async fn what_is_deleted_while_the_stream_is_down_is_deleted_in_the_sink() {
    let server = |before, mut client: Whole| async move {
        let resources: &[&str] = if before == 0 { &["ns/a@1", "ns/b@1"] } else { &["ns/b@1"] };
        client.receive().await;
        client.send(whole(RULE, "1", resources)).await;
        client.receive().await;
        if before > 0 {
            client.receive().await;
        }
        Status::unavailable("going away")
    };
    let mut following = Subscription::whole(&[RULES], server).await;
    assert_eq!(following.accept().await, (true, list(&["ns/a", "ns/b"]), vec![]));
    assert_eq!(following.accept().await, (false, vec![], list(&["ns/a"])));

    let server = |before, mut client: Changes| async move {
        let told: Vec<_> = client.receive().await.unwrap().initial_resource_versions.into_keys().collect();
        if before == 0 {
            client.send(changes(RULE, "1", &["ns/a@1", "ns/b@1"], &[])).await;
            client.receive().await;
        } else {
            assert_eq!(told, ["ns/a", "ns/b"]);
            client.send(changes(RULE, "1", &[], &["ns/a"])).await;
            client.receive().await;
            client.receive().await;
        }
        Status::unavailable("going away")
    };
    let mut following = Subscription::delta(&[RULES], server).await;
    assert_eq!(following.accept().await, (true, list(&["ns/a", "ns/b"]), vec![]));
    assert_eq!(following.accept().await, (false, vec![], list(&["ns/a"])));
}

/// The server ends the stream for a type that it does not have; the next streams ask for the others.
#[tokio::test]
async fn a_type_that_the_server_does_not_have_counts_as_empty() {
    let missing = move || Status::unimplemented(format!("no resources of type {HANDLER}"));
    let server = move |_, mut client: Whole| async move {
        while let Some(request) = client.receive().await {
            match request.type_url.as_str() {
                HANDLER => return missing(),
                url if request.response_nonce.is_empty() => client.send(whole(url, "1", &["ns/a@1"])).await,
                _ => {}
            }
        }
        Status::ok("")
    };
    let following = Subscription::whole(&[HANDLERS, RULES], server).await;
    expect_empty_handlers(following).await;

    let server = move |_, mut client: Changes| async move {
        while let Some(request) = client.receive().await {
            match request.type_url.as_str() {
                HANDLER => return missing(),
                url if request.response_nonce.is_empty() => {
                    client.send(changes(url, "1", &["ns/a@1"], &[])).await;
                }
                _ => {}
            }
        }
        Status::ok("")
    };
    let following = Subscription::delta(&[HANDLERS, RULES], server).await;
    expect_empty_handlers(following).await;
}

async fn expect_empty_handlers(mut following: Subscription) {
    let mut arrived = [following.accept().await, following.accept().await];
    arrived.sort();
    assert_eq!(arrived, [(true, vec![], vec![]), (true, list(&["ns/a"]), vec![])]);
    let status = following.sink.status().await.unwrap();
    let unsupported = status.collections.iter().filter(|collection| collection.unsupported);
    assert_eq!(unsupported.map(|collection| &*collection.collection).collect::<Vec<_>>(), [HANDLERS]);
}

/// istiod of 2026 without a control plane's identity.
#[tokio::test]
async fn a_rejected_client_retries_slowly() {
    let server = |_, _: Whole| async { Status::permission_denied("not a control plane") };
    let following = Subscription::whole(&[RULES], server).await;
    // The longest wait is 50 ms here, and counts from the first refusal.
    sleep(Duration::from_millis(130)).await;
    let streams = following.streams.load(SeqCst);
    assert!((1..=3).contains(&streams), "{streams} streams");
}

#[tokio::test]
async fn the_sink_reports_its_peer_and_what_was_exchanged() {
    let server = |_, mut client: Whole| async move {
        client.receive().await;
        client.send(whole(RULE, "n1", &["ns/a@1"])).await;
        while client.receive().await.is_some() {}
        Status::ok("")
    };
    let mut following = Subscription::whole(&[RULES], server).await;
    following.accept().await;
    let kinds = timeout(SOON, async {
        loop {
            let status = following.sink.status().await.unwrap();
            let kinds: Vec<_> = status.messages.iter().map(|message| message.kind).collect();
            if kinds.len() >= 3 {
                return kinds;
            }
            sleep(Duration::from_millis(5)).await;
        }
    });
    assert_eq!(kinds.await.unwrap(), ["ask", "push", "ack"]);
}

/// What a client says of itself: docs/behaviour/xds.md#versions-of-the-api.
#[test]
fn the_node_says_what_it_is_and_what_it_can_do() {
    use mixer_adapter_streams::proto::envoy::config::core::v3::{Extension, node::UserAgentVersionType};
    let denier = Extension {
        name: "denier".to_owned(),
        category: "mixer.adapters".to_owned(),
        ..Extension::default()
    };
    let node: Node = node("pod-7", "istio-system", vec![denier.clone()]);
    assert_eq!(node.id, "sidecar~127.0.0.1~pod-7.istio-system~istio-system.svc.cluster.local");
    assert_eq!(node.user_agent_name, "mixer-adapter");
    let version = UserAgentVersionType::UserAgentVersion(env!("CARGO_PKG_VERSION").to_owned());
    assert_eq!(node.user_agent_version_type, Some(version));
    assert_eq!(node.extensions, [denier]);
    assert!(!node.client_features.is_empty());
    let generator = node.metadata.unwrap().fields.remove("GENERATOR").and_then(|value| value.kind);
    assert_eq!(generator, Some(prost_types::value::Kind::StringValue("api".to_owned())));
}
