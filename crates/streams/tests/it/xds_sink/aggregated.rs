//! The protocol before MCP: `AggregatedMeshConfigService` of Istio 1.0 and 1.1.

use std::time::Duration;

use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use mixer_adapter_streams::{
    mcp::sink::{Aggregated, AggregatedDelta, dial_aggregated},
    proto::istio::mcp::v1alpha1::{
        IncrementalMeshConfigRequest, IncrementalMeshConfigResponse, MeshConfigRequest, MeshConfigResponse,
        Resource,
        aggregated_mesh_config_service_server::{
            AggregatedMeshConfigService, AggregatedMeshConfigServiceServer,
        },
    },
    stream::{
        DialOptions, Peer, listen,
        sink::{Mode, Sink, Variant},
    },
};
use prost::Message;
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming, service::Routes};

use super::{
    client::{Client, options},
    messages::*,
};

impl Shape for MeshConfigRequest {
    fn shape(&self) -> String {
        let Self { version_info, sink_node, type_url, response_nonce, error_detail } = self;
        assert_eq!(sink_node.as_ref().map(|node| &*node.id), Some("sink"));
        let error = error_detail.as_ref().map_or("", |error| &error.message);
        format!("{type_url} {version_info:?} {response_nonce:?} {error}").trim_end().to_owned()
    }
}

impl Shape for IncrementalMeshConfigRequest {
    fn shape(&self) -> String {
        let Self { type_url, initial_resource_versions: versions, response_nonce, error_detail, .. } = self;
        let error = error_detail.as_ref().map_or("", |error| &error.message);
        format!("{type_url} {versions:?} {response_nonce:?} {error}").trim_end().to_owned()
    }
}

fn resources(texts: &[&str]) -> Vec<Resource> {
    texts.iter().map(|text| Resource::decode(wrapped(text).value).unwrap()).collect()
}

fn whole(nonce: &str, texts: &[&str]) -> MeshConfigResponse {
    MeshConfigResponse {
        version_info: format!("v{nonce}"),
        resources: resources(texts),
        type_url: RULES.to_owned(),
        nonce: nonce.to_owned(),
    }
}

#[test]
fn whole_collections_are_asked_for_by_name_and_answered_by_the_version_accepted_last() {
    let mut client = Client::open(|_, _| Aggregated::default(), options(Mode::Full, &[RULES]));
    assert_eq!(client.sent(), [format!("{RULES} \"\" \"\"")]);
    client.receive(whole("1", &["ns/a@1", "ns/b@1"]));
    assert_eq!(client.accept(), [format!("{RULES} = ns/a@1 ns/b@1")]);
    assert_eq!(client.sent(), [format!("{RULES} \"v1\" \"1\"")]);
    client.receive(whole("2", &["ns/a@2"]));
    client.refuse("ns/a", "bad");
    assert_eq!(client.sent(), [format!("{RULES} \"v1\" \"2\" {RULES}: ns/a: bad")]);
    client.receive(whole("3", &["ns/a@3"]));
    assert_eq!(client.accept(), [format!("{RULES} + ns/a@3")]);
    assert_eq!(client.holds(RULES), ["ns/a@3"]);
    assert_eq!(client.sent(), [format!("{RULES} \"v3\" \"3\"")]);
    client.reopen();
    assert_eq!(client.sent(), [format!("{RULES} \"\" \"\"")]);
}

fn changes(nonce: &str, texts: &[&str], removed: &[&str]) -> IncrementalMeshConfigResponse {
    IncrementalMeshConfigResponse {
        system_version_info: format!("v{nonce}"),
        resources: resources(texts),
        removed_resources: removed.iter().map(|name| (*name).to_owned()).collect(),
        nonce: nonce.to_owned(),
    }
}

#[test]
fn changes_of_a_collection_are_applied_and_a_new_stream_states_what_is_held() {
    let mut client = Client::open(|_, _| AggregatedDelta::new(RULES), options(Mode::Delta, &[RULES]));
    assert_eq!(client.sent(), [format!("{RULES} {{}} \"\"")]);
    client.receive(changes("1", &["ns/a@1", "ns/b@1"], &[]));
    assert_eq!(client.accept(), [format!("{RULES} = ns/a@1 ns/b@1")]);
    client.receive(changes("2", &["ns/c@1"], &["ns/b"]));
    assert_eq!(client.accept(), [format!("{RULES} + ns/c@1 -ns/b")]);
    let acks = [format!("{RULES} {{}} \"1\""), format!("{RULES} {{}} \"2\"")];
    assert_eq!(client.sent(), acks);
    client.reopen();
    assert_eq!(client.sent(), [format!("{RULES} {{\"ns/a\": \"1\", \"ns/c\": \"1\"}} \"\"")]);
    client.receive(changes("1", &[], &["ns/a"]));
    client.accept();
    assert_eq!(client.holds(RULES), ["ns/c@1"]);
}

/// A server that knows the rules by one name only, and ends streams that request another one, as those of Istio do.
struct Named {
    name: &'static str,
    requested: mpsc::Sender<String>,
}

#[tonic::async_trait]
impl AggregatedMeshConfigService for Named {
    type StreamAggregatedResourcesStream = BoxStream<'static, Result<MeshConfigResponse, Status>>;
    type IncrementalAggregatedResourcesStream =
        BoxStream<'static, Result<IncrementalMeshConfigResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<MeshConfigRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (name, requested) = (self.name, self.requested.clone());
        let mut requests = request.into_inner();
        let first = requests.message().await?.unwrap();
        let _ = requested.send(first.type_url.clone()).await;
        let answer = if first.type_url == name {
            Ok(MeshConfigResponse { type_url: first.type_url, ..whole("1", &["ns/a@1"]) })
        } else {
            Err(Status::invalid_argument(format!("unsupported type_url {:?}", first.type_url)))
        };
        let acknowledged = stream::once(async move {
            let second = requests.message().await?.unwrap_or_default();
            let _ = requested.send(format!("{} {}", second.type_url, second.response_nonce)).await;
            std::future::pending().await
        });
        Ok(Response::new(stream::iter([answer]).chain(acknowledged).boxed()))
    }

    async fn incremental_aggregated_resources(
        &self,
        request: Request<Streaming<IncrementalMeshConfigRequest>>,
    ) -> Result<Response<Self::IncrementalAggregatedResourcesStream>, Status> {
        let (name, requested) = (self.name, self.requested.clone());
        let mut requests = request.into_inner();
        let first = requests.message().await?.unwrap();
        let _ = requested.send(first.type_url.clone()).await;
        let answer = if first.type_url == name {
            Ok(changes("1", &["ns/a@1"], &[]))
        } else {
            Err(Status::invalid_argument(format!("unsupported type_url {:?}", first.type_url)))
        };
        let acknowledged = stream::once(async move {
            let second = requests.message().await?.unwrap_or_default();
            let _ = requested.send(format!("{} {}", second.type_url, second.response_nonce)).await;
            std::future::pending().await
        });
        Ok(Response::new(stream::iter([answer]).chain(acknowledged).boxed()))
    }
}

#[tokio::test]
async fn collections_are_requested_by_the_type_url_and_then_by_name() {
    const TYPE_URL: &str = "type.googleapis.com/istio.policy.v1beta1.Rule";
    let names = [(TYPE_URL, &[TYPE_URL][..]), (RULES, &[TYPE_URL, RULES])];
    let variants = [(Variant::Sotw, Mode::Full), (Variant::Delta, Mode::Delta)];
    for ((name, tried), (variant, mode)) in
        names.into_iter().flat_map(|name| variants.map(|variant| (name, variant)))
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requested, mut requests) = mpsc::channel(100);
        let stop = CancellationToken::new();
        let routes = Routes::new(AggregatedMeshConfigServiceServer::new(Named { name, requested }));
        tokio::spawn(listen(listener, routes, stop.clone()));
        let (sink, mut changes) = Sink::start(options(mode, &[RULES]), None);
        let eager = DialOptions::default().first_wait(Duration::from_millis(10));
        let server = Peer::new(address.to_string());
        tokio::spawn(dial_aggregated(sink, server, variant, eager, stop.clone()));
        let _stop = stop.drop_guard();
        let soon = Duration::from_secs(10);
        for name in tried {
            assert_eq!(timeout(soon, requests.recv()).await.unwrap().as_deref(), Some(*name));
        }
        let offer = timeout(soon, changes.recv()).await.unwrap().unwrap();
        assert_eq!(&*offer.content().collection, RULES);
        offer.accept();
        let answer = timeout(soon, requests.recv()).await.unwrap();
        assert_eq!(answer, Some(format!("{name} 1")), "the answer has the name of the request");
    }
}
