//! Streams of MCP and xDS may be silent for as long as the other end answers pings.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use mixer_adapter_streams::{
    mcp,
    stream::{
        Keepalive, ListenOptions, Peer, listen_with,
        sink::{Sink, Variant},
        source::ConfigServer,
    },
    xds::{self, sink::ApiVersion},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    messages::*,
    sockets::{accept, eager, named, set, source, source_routes, start},
};

const SOON: Duration = Duration::from_secs(30);

/// Pings that are soon missed.
fn frequent() -> Keepalive {
    Keepalive::default().interval(Duration::from_millis(10)).timeout(Duration::from_secs(1))
}

/// Passes connections on to an address.
struct Relay {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    frozen: watch::Sender<()>,
}

impl Relay {
    async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (frozen, freezes) = watch::channel(());
        let counted = connections.clone();
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, SeqCst);
                let mut server = TcpStream::connect(to).await.unwrap();
                let mut freezes = freezes.clone();
                freezes.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        _ended = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        // Open, but nothing passes any more.
                        _ = freezes.changed() => std::future::pending().await,
                    }
                });
            }
        });
        Self { address, connections, frozen }
    }

    /// Lets nothing pass any more on the connections that are open.
    fn freeze(&self) {
        self.frozen.send_replace(());
    }

    fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let reached = async {
        while !holds() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, reached).await.unwrap_or_else(|_| panic!("in vain waited until {what}"));
}

/// Serves a source, with these pings.
async fn serve(source: &ConfigServer, keepalive: Keepalive) -> (Relay, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let services = xds::source::mount(source_routes(source), source, &xds::source::default_options());
    let stop = CancellationToken::new();
    tokio::spawn(listen_with(
        listener,
        services,
        ListenOptions::default().keepalive(keepalive),
        stop.clone(),
    ));
    (Relay::start(address).await, stop.drop_guard())
}

#[derive(Clone, Copy, Debug)]
enum Protocol {
    Mcp,
    Xds(Variant),
}

const PROTOCOLS: [Protocol; 3] = [Protocol::Mcp, Protocol::Xds(Variant::Sotw), Protocol::Xds(Variant::Delta)];

fn dial(protocol: Protocol, sink: &Sink, relay: &Relay, keepalive: Keepalive) -> DropGuard {
    let stop = CancellationToken::new();
    let (sink, stopped) = (sink.clone(), stop.clone());
    let peer = Peer::new(relay.address.to_string()).with_keepalive(keepalive);
    match protocol {
        Protocol::Mcp => drop(tokio::spawn(mcp::sink::dial(sink, peer, eager(), stopped))),
        Protocol::Xds(variant) => {
            let (node, version) = (xds::sink::node("pod", "ns", Vec::new()), (ApiVersion::V3, variant));
            drop(tokio::spawn(xds::sink::dial(sink, peer, version, node, eager(), stopped)));
        }
    }
    stop.drop_guard()
}

async fn for_each_protocol(test: impl AsyncFn(Protocol)) {
    join_all(PROTOCOLS.map(|protocol| test(protocol))).await;
}

#[tokio::test]
async fn a_silent_stream_stays_open_while_pings_are_answered() {
    for_each_protocol(async |protocol| {
        let source = source();
        set(&source, RULES, &["ns/a@1"]);
        let (relay, _stop) = serve(&source, frequent()).await;
        let (sink, mut changes) = start(&[RULES]);
        let _dial = dial(protocol, &sink, &relay, frequent());
        accept(&mut changes).await;
        // Longer than either end waits for the answer to a ping.
        sleep(2 * frequent().timeout).await;
        set(&source, RULES, &["ns/a@2"]);
        let (_, changed, _) = accept(&mut changes).await;
        assert_eq!((changed.len(), relay.connections()), (1, 1), "{protocol:?}");
    })
    .await;
}

#[tokio::test]
async fn a_source_ends_a_stream_whose_sink_answers_no_pings() {
    for_each_protocol(async |protocol| {
        let source = source();
        set(&source, RULES, &["ns/a@1"]);
        let (relay, _stop) = serve(&source, frequent()).await;
        let (sink, mut changes) = start(&[RULES]);
        // The sink itself misses nothing.
        let _dial = dial(protocol, &sink, &relay, Keepalive::default());
        accept(&mut changes).await;
        assert_eq!(source.sinks().len(), 1);
        relay.freeze();
        until("the source forgets the sink", || source.sinks().is_empty()).await;
    })
    .await;
}

#[tokio::test]
async fn a_sink_opens_another_stream_if_its_source_answers_no_pings() {
    for_each_protocol(async |protocol| {
        let source = source();
        set(&source, RULES, &["ns/a@1"]);
        let (relay, _stop) = serve(&source, Keepalive::default()).await;
        let (sink, mut changes) = start(&[RULES]);
        let _dial = dial(protocol, &sink, &relay, frequent());
        accept(&mut changes).await;
        relay.freeze();
        set(&source, RULES, &["ns/b@1"]);
        let (_, changed, removed) = accept(&mut changes).await;
        assert_eq!((changed.len(), removed), (1, named(&["ns/a"])), "{protocol:?}");
        assert!(relay.connections() > 1, "{protocol:?}");
    })
    .await;
}
