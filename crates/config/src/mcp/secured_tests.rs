//! Sink and source over mutual TLS, either of them dialing.
#![allow(clippy::unwrap_used)]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Code, service::Routes};

use super::{
    Change, DialOptions, Listener, Peer, Resource, StreamSource, listen,
    sink::SinkOptions,
    source::{self, Catalogue, ConfigServer, ConfigServerOptions, ResourceSourceService},
};
use crate::source::{Source as _, SourceSettings, Update, Wanted};
use mixer_adapter_core::proto::Any;
use mixer_adapter_net::tls::{self, AccessSettings, Credentials};
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
        Resource { name: "ns/a".to_owned(), version: version.to_owned(), body, ..Resource::default() };
    source.apply(&Change {
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
    let service = ResourceSourceService::serve(source.clone(), &ResourceSourceService::default_options());
    let stop = CancellationToken::new();
    tokio::spawn(listen(Listener::with_tls(listener, security), Routes::new(service), stop.clone()));
    (address, stop.drop_guard())
}

fn eager() -> DialOptions {
    let (first_wait, longest_wait) = (Duration::from_millis(10), Duration::from_millis(50));
    DialOptions { first_wait, longest_wait, ..DialOptions::default() }
}

fn follow(address: SocketAddr, client: Arc<tls::Client>) -> mpsc::Receiver<Update> {
    let peer = Peer::secured(address.to_string(), client);
    assert_eq!(peer.to_string(), format!("mcps://{address}"));
    let source = StreamSource::new(peer, SinkOptions::new("sink", [COLLECTION])).dialed(eager());
    let (updates, received) = mpsc::channel(1);
    tokio::spawn(Box::new(source).run(updates));
    received
}

async fn next(updates: &mut mpsc::Receiver<Update>) -> Update {
    timeout(Duration::from_secs(10), updates.recv()).await.unwrap().unwrap()
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
    let client = tls::Client::new(credentials(&files, &authority, &[SINK]), Vec::new()).unwrap();

    let channel = Peer::secured(address.to_string(), client.clone()).connect().await.unwrap();
    let mut asking =
        crate::proto::istio::mcp::v1alpha1::resource_source_client::ResourceSourceClient::new(channel);
    let refused = asking.establish_resource_stream(futures_util::stream::pending()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert_eq!(
        refused.message(),
        "Authentication failure: no allowed identity found in peer's authentication info"
    );

    let mut updates = follow(address, client);
    sleep(Duration::from_millis(200)).await;
    assert!(updates.try_recv().is_err());
    files.write("list", &format!("allowed: [\"{SINK}\"]"));
    next(&mut updates).await.responder.ack();
    let peer = source.sinks()[0].peer.clone();
    assert!(peer.starts_with("127.0.0.1:") && peer.ends_with(&format!(" ({SINK})")), "{peer}");
    // The stream that is open goes on when its sink is taken off the list.
    files.write("list", "allowed: []");
    sleep(Duration::from_millis(600)).await;
    set(&source, "2");
    next(&mut updates).await.responder.ack();
    assert!(asking.establish_resource_stream(futures_util::stream::pending()).await.is_err());
}

#[tokio::test]
async fn a_source_that_dials_a_sink_over_tls_configures_it() {
    let (authority, files) = (Authority::new(), Files::new());
    let galley = "spiffe://cluster.local/ns/istio-system/sa/galley";
    let access = AccessSettings { allow: vec![galley.to_owned()], file: None };
    let security = tls::Server::new(credentials(&files, &authority, &[SINK]), access).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let wanted = Wanted { collection: COLLECTION.to_owned(), required: true };
    let settings = SourceSettings { collections: vec![wanted], ..SourceSettings::new("ns") };
    let sink = StreamSource::listening(Listener::with_tls(listener, security), &settings);
    assert_eq!(sink.name(), format!("sources that dial mcps://{address}"));
    let (updates, mut received) = mpsc::channel(1);
    tokio::spawn(Box::new(sink).run(updates));

    let source = source();
    set(&source, "1");
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let client = tls::Client::new(credentials(&files, &authority, &[galley]), vec![SINK.to_owned()]).unwrap();
    tokio::spawn(source::dial(source, Peer::secured(address.to_string(), client), eager(), stop));
    assert_eq!(next(&mut received).await.changes.len(), 1);
}
