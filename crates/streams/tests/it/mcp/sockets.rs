//! Sink and source over real sockets.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use mixer_adapter_config::{Offer, source::SourceStatus};
use mixer_adapter_core::proto::Any;
use mixer_adapter_streams::{
    mcp::{
        sink::{self, ResourceSinkService},
        source,
    },
    stream::{
        DialOptions, Peer, RawChange, RawResource, listen,
        sink::{Cache, Sink, SinkOptions},
        source::{Catalogue, ConfigServer, ConfigServerOptions},
    },
};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::service::Routes;

use super::messages::*;

/// Patience of a test.
const SOON: Duration = Duration::from_secs(10);

/// A service on a free port.
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Listening {
    /// Ends it, so that the port is free again.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.serving.await.unwrap();
    }
}

pub(crate) async fn serve(services: Routes) -> Listening {
    serve_on(services, "127.0.0.1:0".parse().unwrap()).await
}

pub(crate) async fn serve_on(services: Routes, address: SocketAddr) -> Listening {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(listen(listener, services, stop.clone()));
    Listening { address, stop, serving }
}

pub(crate) fn source_routes(source: &ConfigServer) -> Routes {
    source::mount(Routes::default(), source, &source::default_options())
}

pub(crate) fn source() -> ConfigServer {
    ConfigServer::new(Catalogue::of([RULES, HANDLERS, INSTANCES]), ConfigServerOptions::default())
}

pub(crate) fn set(source: &ConfigServer, collection: &str, resources: &[&str]) {
    let resources = resources.iter().map(|text| {
        let (name, version) = text.split_once('@').unwrap();
        let body = resource(text).body.unwrap();
        Arc::new(RawResource {
            name: name.to_owned(),
            version: version.to_owned(),
            body,
            ..RawResource::default()
        })
    });
    source.apply(&RawChange {
        collection: collection.into(),
        version: String::new(),
        full: true,
        resources: resources.collect(),
        removed: Vec::new(),
    });
}

/// Tries again soon: tests have no time.
pub(crate) fn eager() -> DialOptions {
    DialOptions::default().first_wait(Duration::from_millis(10)).longest_wait(Duration::from_millis(50))
}

pub(crate) fn dial(sink: &Sink, address: SocketAddr, options: DialOptions) -> DropGuard {
    let stop = CancellationToken::new();
    tokio::spawn(sink::dial(sink.clone(), Peer::new(address.to_string()), options, stop.clone()));
    stop.drop_guard()
}

pub(crate) fn start(collections: &[&str]) -> (Sink, mpsc::Receiver<Offer<RawChange>>) {
    Sink::start(SinkOptions::new("sink", collections.iter().copied()), None)
}

/// The next change, accepted: full or not, names changed, names removed.
pub(crate) async fn accept(
    changes: &mut mpsc::Receiver<Offer<RawChange>>,
) -> (bool, Vec<String>, Vec<String>) {
    let offer = timeout(SOON, changes.recv()).await.unwrap().unwrap();
    let change = offer.content();
    let named = change.resources.iter().map(|resource| format!("{}@{}", resource.name, resource.version));
    let result = (change.full, named.collect(), change.removed.clone());
    offer.accept();
    result
}

pub(crate) async fn until(sink: &Sink, mut holds: impl FnMut(&SourceStatus) -> bool) -> SourceStatus {
    timeout(SOON, async {
        loop {
            let status = sink.status().await.unwrap();
            if holds(&status) {
                return status;
            }
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap()
}

pub(crate) fn named(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// TestClientSink: apply, and changes flow
#[tokio::test]
async fn a_sink_that_dials_gets_what_the_source_has_and_its_changes() {
    let source = source();
    set(&source, RULES, &["ns/a@1", "ns/b@1"]);
    let listening = serve(source_routes(&source)).await;
    let (sink, mut changes) = start(&[RULES]);
    let _dial = dial(&sink, listening.address, eager());
    assert_eq!(accept(&mut changes).await, (true, named(&["ns/a@1", "ns/b@1"]), vec![]));
    set(&source, RULES, &["ns/a@1", "ns/b@2"]);
    assert_eq!(accept(&mut changes).await, (false, named(&["ns/b@2"]), vec![]));
    let status = until(&sink, |status| status.messages.len() == 5).await;
    assert_eq!(status.messages[3].what, "1 changed, 0 removed", "after the whole, changes");
    set(&source, RULES, &[]);
    assert_eq!(accept(&mut changes).await, (false, vec![], named(&["ns/a", "ns/b"])));

    let kinds: Vec<_> = status.messages.iter().map(|message| message.kind).collect();
    assert_eq!(kinds, ["ask", "push", "ack", "push", "ack"]);
    assert_eq!(status.peers, [format!("mcp://{}", listening.address)]);
}

/// TestClientSink: open errors are retried; TestSinkResume
#[tokio::test]
async fn a_source_that_comes_late_or_restarts_is_found_and_an_equal_state_is_no_event() {
    let first = source();
    set(&first, RULES, &["ns/a@1"]);
    let address = {
        // A port nobody listens on.
        TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
    };
    let (sink, mut changes) = start(&[RULES]);
    let _dial = dial(&sink, address, eager());
    sleep(Duration::from_millis(50)).await;
    let listening = serve_on(source_routes(&first), address).await;
    accept(&mut changes).await;
    until(&sink, |status| status.collections[0].accepted_seconds_ago.is_some()).await;

    listening.end().await;
    let second = source();
    set(&second, RULES, &["ns/a@1"]);
    let _listening = serve_on(source_routes(&second), address).await;
    timeout(SOON, async {
        while second.sinks().first().is_none_or(|sink| sink.collections.is_empty()) {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    assert!(changes.try_recv().is_err(), "the same state is no event");
    set(&second, RULES, &["ns/b@1"]);
    assert_eq!(accept(&mut changes).await, (false, named(&["ns/b@1"]), named(&["ns/a"])));
}

/// TestServerSink, TestClientSource
#[tokio::test]
async fn a_source_may_dial_the_sink() {
    let (sink, mut changes) = start(&[RULES, HANDLERS]);
    let service = ResourceSinkService::serve(sink.clone(), &ResourceSinkService::default_options());
    let listening = serve(Routes::new(service)).await;
    let source = source();
    set(&source, RULES, &["ns/a@1"]);
    set(&source, HANDLERS, &["ns/h@1"]);
    let stop = CancellationToken::new();
    let peer = Peer::new(listening.address.to_string());
    let dialing = tokio::spawn(source::dial(source.clone(), peer, eager(), stop.clone()));
    let mut first = [accept(&mut changes).await.1, accept(&mut changes).await.1];
    first.sort();
    assert_eq!(first, [named(&["ns/a@1"]), named(&["ns/h@1"])]);
    set(&source, RULES, &["ns/a@2"]);
    assert_eq!(accept(&mut changes).await.1, named(&["ns/a@2"]));
    let status = sink.status().await.unwrap();
    let refused: Vec<_> = status.messages.iter().filter(|message| message.kind == "nack").collect();
    assert_eq!((refused.len(), refused[0].collection.as_str()), (1, source::TRIGGER));

    stop.cancel();
    dialing.await.unwrap();
    until(&sink, |status| status.peers.is_empty()).await;
}

/// TestServerSink, second connection
#[tokio::test]
async fn two_sources_may_be_connected() {
    let (sink, mut changes) = start(&[RULES]);
    let service = ResourceSinkService::serve(sink.clone(), &ResourceSinkService::default_options());
    let listening = serve(Routes::new(service)).await;
    let sources = [source(), source()];
    for source in &sources {
        set(source, RULES, &["ns/a@1"]);
        let peer = Peer::new(listening.address.to_string());
        tokio::spawn(source::dial(source.clone(), peer, eager(), CancellationToken::new()));
    }
    accept(&mut changes).await;
    until(&sink, |status| status.messages.iter().filter(|message| message.kind == "ack").count() == 2).await;
    set(&sources[0], RULES, &["ns/a@2"]);
    set(&sources[1], RULES, &["ns/a@2"]);
    assert_eq!(accept(&mut changes).await.1, named(&["ns/a@2"]));
    sleep(Duration::from_millis(50)).await;
    assert!(changes.try_recv().is_err());
}

#[tokio::test]
async fn a_refusal_reaches_the_source_and_the_next_version_the_sink() {
    let source = source();
    set(&source, RULES, &["ns/a@1"]);
    let listening = serve(source_routes(&source)).await;
    let (sink, mut changes) = start(&[RULES]);
    let _dial = dial(&sink, listening.address, eager());
    // Dropped: nobody decided.
    drop(timeout(SOON, changes.recv()).await.unwrap().unwrap());
    let status = until(&sink, |status| status.collections[0].refused.is_some()).await;
    let told = "this program does not accept configuration any more";
    assert_eq!(status.collections[0].refused.as_ref().unwrap().reason, told);
    let reason = timeout(SOON, async {
        loop {
            let peers = source.sinks();
            let watch = peers.first().and_then(|peer| peer.collections.get(RULES));
            if let Some((_, reason)) = watch.and_then(|watch| watch.refused.clone()) {
                return reason;
            }
            sleep(Duration::from_millis(5)).await;
        }
    });
    assert_eq!(reason.await.unwrap(), format!("{RULES}: {told}"));
    set(&source, RULES, &["ns/a@2"]);
    assert_eq!(accept(&mut changes).await, (true, named(&["ns/a@2"]), vec![]));
}

/// A collection that the source does not serve is not asked for again at once, and the others go on.
#[tokio::test]
async fn collections_the_source_does_not_serve_are_found_out_one_by_one() {
    let source = source();
    set(&source, RULES, &["ns/a@1"]);
    let listening = serve(source_routes(&source)).await;
    let (sink, mut changes) = start(&["a/first", RULES, "z/last"]);
    let _dial = dial(&sink, listening.address, DialOptions::default());
    let empty = || (true, vec![], vec![]);
    let mut accepted = [accept(&mut changes).await, accept(&mut changes).await, accept(&mut changes).await];
    accepted.sort();
    assert_eq!(accepted, [empty(), empty(), (true, named(&["ns/a@1"]), vec![])]);
    let status =
        until(&sink, |status| status.collections.iter().filter(|c| c.unsupported).count() == 2).await;
    let left: Vec<_> = status.collections.iter().filter(|c| !c.unsupported).map(|c| &*c.collection).collect();
    assert_eq!(left, [RULES]);
}

#[tokio::test]
async fn a_push_of_5_mb_arrives() {
    let source = source();
    let body = Any { type_url: "type.googleapis.com/a.B".to_owned(), value: vec![7; 5_000_000].into() };
    source.apply(&RawChange {
        collection: RULES.into(),
        version: String::new(),
        full: true,
        resources: vec![Arc::new(RawResource {
            name: "ns/large".to_owned(),
            body,
            ..RawResource::default()
        })],
        removed: Vec::new(),
    });
    let listening = serve(source_routes(&source)).await;
    let (sink, mut changes) = start(&[RULES]);
    let _dial = dial(&sink, listening.address, eager());
    let offer = timeout(SOON, changes.recv()).await.unwrap().unwrap();
    assert_eq!(offer.content().resources[0].body.value.len(), 5_000_000);
}

/// TestServerSinkRateLimitter, TestConnRateLimit
#[tokio::test]
async fn streams_beyond_the_limit_are_refused_until_one_ends() {
    let source = source();
    set(&source, RULES, &["ns/a@1"]);
    let options = source::default_options().max_streams(1);
    let listening = serve(source::mount(Routes::default(), &source, &options)).await;
    let (first, mut changes) = start(&[RULES]);
    let first_dial = dial(&first, listening.address, eager());
    accept(&mut changes).await;
    let (second, mut changes) = start(&[RULES]);
    let _dial = dial(&second, listening.address, eager());
    sleep(Duration::from_millis(100)).await;
    assert!(changes.try_recv().is_err());
    drop(first_dial);
    accept(&mut changes).await;
}

#[tokio::test]
async fn a_closed_source_ends_its_streams() {
    let source = source();
    set(&source, RULES, &["ns/a@1"]);
    let listening = serve(source_routes(&source)).await;
    let (sink, mut changes) = start(&[RULES]);
    let _dial = dial(&sink, listening.address, DialOptions::default());
    accept(&mut changes).await;
    source.close();
    until(&sink, |status| status.peers.is_empty()).await;
    assert!(source.sinks().is_empty());
}

#[tokio::test]
async fn what_was_accepted_survives_a_restart_without_the_source() {
    let directory = tempfile::tempdir().unwrap();
    let options = || SinkOptions::new("sink", [RULES, HANDLERS]);
    let source = source();
    set(&source, RULES, &["ns/a@1", "ns/b@1"]);
    set(&source, HANDLERS, &["ns/h@1"]);
    let listening = serve(source_routes(&source)).await;
    {
        let (sink, mut changes) = Sink::start(options(), Some(Cache::open(directory.path()).unwrap()));
        let _dial = dial(&sink, listening.address, eager());
        accept(&mut changes).await;
        accept(&mut changes).await;
        set(&source, RULES, &["ns/b@2"]);
        accept(&mut changes).await;
        until(&sink, |status| status.collections.iter().all(|c| c.resources == 1)).await;
    }
    let files = || {
        let entries = std::fs::read_dir(directory.path()).unwrap();
        entries
            .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "mcp"))
            .count()
    };
    timeout(SOON, async {
        while files() != 2 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    std::fs::write(directory.path().join("broken.mcp"), b"\xff\xff").unwrap();
    // A push that can be decoded, but whose checksum is not that of its content.
    let name = format!("{}.mcp", HANDLERS.replace('/', "%2f"));
    let file = std::fs::read(directory.path().join(name)).unwrap();
    let at = file.windows(4).position(|bytes| bytes == b"ns/h").unwrap();
    let changed = [&file[..at], b"ns/x", &file[at + 4..]].concat();
    std::fs::write(directory.path().join("changed.mcp"), changed).unwrap();

    let (sink, mut changes) = Sink::start(options(), Some(Cache::open(directory.path()).unwrap()));
    let mut kept = [accept(&mut changes).await, accept(&mut changes).await];
    kept.sort();
    assert_eq!(kept, [(true, named(&["ns/b@2"]), vec![]), (true, named(&["ns/h@1"]), vec![])]);
    let status = until(&sink, |status| status.collections.iter().all(|c| c.resources == 1)).await;
    assert!(status.collections.iter().all(|collection| !collection.synced));
    let _dial = dial(&sink, listening.address, eager());
    until(&sink, |status| status.collections.iter().all(|c| c.synced)).await;
    assert!(changes.try_recv().is_err(), "the source has the same");
}
