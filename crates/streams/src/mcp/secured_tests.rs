//! Sink and source over mutual TLS, either of them dialing.
#![allow(clippy::unwrap_used)]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures_util::stream::BoxStream;
use tokio::{
    net::TcpListener,
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Code, Request, Response, Status, Streaming, service::Routes};

use super::source;
use crate::{
    proto::istio::mcp::v1alpha1::{
        RequestResources, Resources,
        resource_source_server::{ResourceSource, ResourceSourceServer},
    },
    settings::{SourceSettings, Wanted},
    stream::{
        listen,
        peer::Peer,
        raw_change::RawChange,
        raw_resource::RawResource,
        redial::DialOptions,
        source::{
            catalogue::Catalogue,
            driver::{ConfigServer, ConfigServerOptions},
        },
    },
    subscription::StreamSource,
    url::ConfigUrl,
};
use mixer_adapter_config::{Acceptance, Offer, source::Source as _};
use mixer_adapter_core::proto::Any;
use mixer_adapter_net::Listener;
use mixer_adapter_net::tls::{self, AccessSettings, ClientOptions, Credentials};
use test_pki::{Authority, Files};

const COLLECTION: &str = "istio/policy/v1beta1/rules";
const SINK: &str = "spiffe://cluster.local/ns/istio-system/sa/mixer";

fn credentials(files: &Files, authority: &Authority, names: &[&str]) -> Credentials {
    let (own, prefix) = (authority.issue(names), names[0].replace(['/', ':'], "-"));
    Credentials {
        certificate: files.write(&format!("{prefix}.cert"), &own.certificate).into(),
        key: files.write(&format!("{prefix}.key"), &own.key).into(),
        authorities: files.write("ca", &authority.pem()).into(),
    }
}

fn source() -> ConfigServer {
    ConfigServer::new(Catalogue::of([COLLECTION]), ConfigServerOptions::default())
}

fn set(source: &ConfigServer, version: &str) {
    let body = Any { type_url: "t/google.protobuf.Struct".to_owned(), value: Vec::new().into() };
    let resource =
        RawResource { name: "ns/a".to_owned(), version: version.to_owned(), body, ..RawResource::default() };
    source.apply(&RawChange {
        collection: COLLECTION.into(),
        version: String::new(),
        full: true,
        resources: vec![Arc::new(resource)],
        removed: Vec::new(),
    });
}

async fn serve(source: &ConfigServer, security: Arc<tls::Server>) -> (SocketAddr, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let services = source::mount(Routes::default(), source, &source::default_options());
    let stop = CancellationToken::new();
    tokio::spawn(listen(Listener::from(listener).with_tls(security), services, stop.clone()));
    (address, stop.drop_guard())
}

fn tls_client(credentials: Credentials, servers: &[&str]) -> Arc<tls::Client> {
    let servers = servers.iter().map(|san| (*san).to_owned()).collect();
    tls::Client::new(ClientOptions::mutual(credentials, servers)).unwrap()
}

fn eager() -> DialOptions {
    let (first_wait, longest_wait) = (Duration::from_millis(10), Duration::from_millis(50));
    DialOptions { first_wait, longest_wait, ..DialOptions::default() }
}

fn settings() -> SourceSettings {
    let wanted = Wanted { collection: COLLECTION.to_owned(), required: true };
    let longest_wait = eager().longest_wait;
    SourceSettings { collections: vec![wanted], longest_wait, ..SourceSettings::new("ns") }
}

fn start(source: StreamSource) -> mpsc::Receiver<Offer> {
    let (target, offers) = mpsc::channel(1);
    tokio::spawn(Acceptance::new(target).run(vec![source.into()]));
    offers
}

fn follow(address: SocketAddr, client: Arc<tls::Client>) -> mpsc::Receiver<Offer> {
    let peer = Peer::secured(address.to_string(), client);
    assert_eq!(peer.to_string(), format!("mcps://{address}"));
    start(StreamSource::mcp(peer, &settings()))
}

async fn next(offers: &mut mpsc::Receiver<Offer>) -> Offer {
    timeout(Duration::from_secs(10), offers.recv()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_sink_on_the_list_is_served_and_one_that_is_not_hears_why_new_streams_see_a_new_list() {
    let (authority, files) = (Authority::new(), Files::new());
    let list = files.write("list", "allowed: []");
    let access = AccessSettings { allow: Vec::new(), file: Some(list.into()) };
    let security = tls::Server::new(credentials(&files, &authority, &["127.0.0.1"]), access).unwrap();
    let source = source();
    set(&source, "1");
    let (address, _serving) = serve(&source, security).await;
    let client = tls_client(credentials(&files, &authority, &[SINK]), &[]);

    let channel = Peer::secured(address.to_string(), client.clone()).connect().await.unwrap();
    let mut asking =
        crate::proto::istio::mcp::v1alpha1::resource_source_client::ResourceSourceClient::new(channel);
    let refused = asking.establish_resource_stream(futures_util::stream::pending()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert_eq!(
        refused.message(),
        "Authentication failure: no allowed identity found in peer's authentication info"
    );

    let mut offers = follow(address, client);
    sleep(Duration::from_millis(200)).await;
    assert!(offers.try_recv().is_err());
    files.write("list", &format!("allowed: [\"{SINK}\"]"));
    next(&mut offers).await.accept();
    let peer = source.sinks()[0].peer.clone();
    assert!(peer.starts_with("127.0.0.1:") && peer.ends_with(&format!(" ({SINK})")), "{peer}");
    // An open stream continues when its sink is removed from the list.
    files.write("list", "allowed: []");
    sleep(Duration::from_millis(600)).await;
    set(&source, "2");
    next(&mut offers).await.accept();
    assert!(asking.establish_resource_stream(futures_util::stream::pending()).await.is_err());
}

/// A server that reports the tokens of its streams, and refuses them.
struct Asking(mpsc::Sender<Option<String>>);

#[tonic::async_trait]
impl ResourceSource for Asking {
    type EstablishResourceStreamStream = BoxStream<'static, Result<Resources, Status>>;

    async fn establish_resource_stream(
        &self,
        request: Request<Streaming<RequestResources>>,
    ) -> Result<Response<Self::EstablishResourceStreamStream>, Status> {
        let token = request.metadata().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        let _ = self.0.send(token).await;
        Err(Status::unavailable("come again"))
    }
}

#[tokio::test]
async fn a_server_is_shown_the_token_that_its_file_has_at_each_connection() {
    let (authority, files) = (Authority::new(), Files::new());
    let access = AccessSettings { allow: vec![SINK.to_owned()], file: None };
    let security = tls::Server::new(credentials(&files, &authority, &["127.0.0.1"]), access).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tokens, mut shown) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let services = Routes::new(ResourceSourceServer::new(Asking(tokens)));
    tokio::spawn(listen(Listener::from(listener).with_tls(security), services, stop.clone()));
    let _stop = stop.drop_guard();
    let file = files.write("token", "one\n");
    let tls = tls_client(credentials(&files, &authority, &[SINK]), &[]);
    let peer = Peer::secured(&*address, tls).with_token_file(Some(file.as_ref()));
    let _offers = start(StreamSource::mcp(peer, &settings()));
    let mut until = async |token: &str| {
        let shown = async { while shown.recv().await.unwrap().as_deref() != Some(token) {} };
        timeout(Duration::from_secs(10), shown).await.unwrap();
    };
    until("Bearer one").await;
    files.write("token", "two");
    until("Bearer two").await;
}

#[test]
fn a_token_is_sent_over_tls_alone() {
    let files = Files::new();
    let file = files.write("token", "secret");
    let settings = settings().token_file(Some(file.into()));
    for url in ["mcp://a:1", "mcp+aggregated://a:1", "xds://a:1", "xds+http://a:1"] {
        let url: ConfigUrl = url.parse().unwrap();
        let refused = url.server(&settings).unwrap_err().to_string();
        assert_eq!(
            refused,
            format!("{url}: a token is sent over TLS alone; write mcps://, xdss:// or xds+https://")
        );
    }
}

#[tokio::test]
async fn a_source_that_dials_a_sink_over_tls_configures_it() {
    let (authority, files) = (Authority::new(), Files::new());
    let galley = "spiffe://cluster.local/ns/istio-system/sa/galley";
    let access = AccessSettings { allow: vec![galley.to_owned()], file: None };
    let security = tls::Server::new(credentials(&files, &authority, &[SINK]), access).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sink = StreamSource::listen(Listener::from(listener).with_tls(security), &settings());
    assert_eq!(sink.name(), format!("sources that dial mcps://{address}"));
    let mut offers = start(sink);

    let source = source();
    set(&source, "1");
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let client = tls_client(credentials(&files, &authority, &[galley]), &[SINK]);
    tokio::spawn(source::dial(source, Peer::secured(address.to_string(), client), eager(), stop));
    assert_eq!(next(&mut offers).await.content().changes.len(), 1);
}
