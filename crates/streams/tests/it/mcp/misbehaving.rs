//! The sink against sources and connections that misbehave.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use mixer_adapter_net::grpc::StreamMemory;
use mixer_adapter_streams::{
    proto::istio::mcp::v1alpha1::{Resource, resource_source_client::ResourceSourceClient},
    stream::{
        DialOptions,
        sink::{Sink, SinkOptions},
        source::ConfigServer,
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use super::{
    messages::*,
    scripted::{Conversation, Scripted},
    sockets::{accept, dial, eager, named, serve, set, source, source_routes, start, until},
};

async fn held(sink: &Sink, collection: &str) -> usize {
    let status = sink.status().await.unwrap();
    status.collections.iter().find(|c| c.collection == collection).unwrap().resources
}

async fn client(source: SocketAddr) -> ResourceSourceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{source}")).unwrap();
    ResourceSourceClient::new(endpoint.connect().await.unwrap())
}

/// Answers every request with that push and a new nonce, however often.
async fn loop_over(mut conversation: Conversation, heard: Arc<AtomicUsize>, bad: bool) -> Status {
    while let Some(request) = conversation.receive().await {
        let nonce = heard.fetch_add(1, SeqCst).to_string();
        let name = if bad { "ns/not..a.name@1" } else { "ns/a@1" };
        conversation.send(push(&request.collection, &nonce, &[name])).await;
    }
    Status::ok("")
}

#[tokio::test]
async fn pushes_that_are_sent_again_are_acknowledged_again_and_no_event() {
    let source = Scripted::start(async |_, mut conversation: Conversation| {
        conversation.receive().await;
        let mut acknowledged = Vec::new();
        for _ in 0..3 {
            conversation.send(push(RULES, "1", &["ns/a@1"])).await;
            acknowledged.push(conversation.receive().await.map(|request| request.response_nonce));
        }
        assert_eq!(acknowledged, vec![Some("1".to_owned()); 3]);
        conversation.send(push(RULES, "1", &["ns/a@2"])).await;
        conversation.wait().await
    })
    .await;
    let (sink, mut changes) = start(&[RULES]);
    let _dial = dial(&sink, source.listening.address, eager());
    assert_eq!(accept(&mut changes).await, (true, named(&["ns/a@1"]), vec![]));
    assert_eq!(accept(&mut changes).await, (false, named(&["ns/a@2"]), vec![]), "even under an old nonce");
}

#[tokio::test]
async fn pushes_without_a_nonce_are_taken() {
    let source = Scripted::start(async |_, mut conversation: Conversation| {
        conversation.receive().await;
        conversation.send(push(RULES, "", &["ns/a@1"])).await;
        assert_eq!(conversation.receive().await.map(|request| request.response_nonce), Some(String::new()));
        conversation.wait().await
    })
    .await;
    let (sink, mut changes) = start(&[RULES]);
    let _dial = dial(&sink, source.listening.address, eager());
    accept(&mut changes).await;
    until(&sink, |status| status.messages.len() == 3).await;
}

#[tokio::test]
async fn a_source_that_pushes_again_and_again_is_not_answered_in_a_hot_loop() {
    for bad in [false, true] {
        let heard = Arc::new(AtomicUsize::new(0));
        let counted = heard.clone();
        let source =
            Scripted::start(move |_, conversation| loop_over(conversation, counted.clone(), bad)).await;
        let (sink, mut changes) = start(&[RULES]);
        let _dial = dial(&sink, source.listening.address, eager());
        if !bad {
            accept(&mut changes).await;
        }
        sleep(Duration::from_millis(500)).await;
        let messages = heard.load(SeqCst);
        assert!((10..=12).contains(&messages), "{messages} requests, bad {bad}");
        assert_eq!(source.streams(), 1);
    }
}

/// Where Istio's sinks of 1.6 and later dial in a hot loop (docs/behaviour/mcp.md#reconnecting).
#[tokio::test]
async fn a_source_that_opens_streams_and_ends_them_is_dialed_ever_less_often() {
    for status in [Status::ok(""), Status::unavailable("no")] {
        let source = Scripted::start(move |_, _| {
            let status = status.clone();
            async { status }
        })
        .await;
        let (sink, _changes) = start(&[RULES]);
        let options = DialOptions::default().first_wait(Duration::from_millis(50));
        let _dial = dial(&sink, source.listening.address, options);
        sleep(Duration::from_millis(800)).await;
        let streams = source.streams();
        assert!((2..=7).contains(&streams), "{streams} streams");
    }
}

#[tokio::test]
async fn a_source_that_wants_to_know_who_it_is_is_dialed_seldom() {
    let source = Scripted::start(async |_, _| Status::unauthenticated("no allowed identity")).await;
    let (sink, _changes) = start(&[RULES]);
    let options = DialOptions::default().first_wait(Duration::from_millis(5));
    let _dial = dial(&sink, source.listening.address, options);
    sleep(Duration::from_millis(300)).await;
    assert_eq!(source.streams(), 1);
}

#[tokio::test]
async fn a_source_that_ends_its_half_is_dialed_again_and_its_state_stays() {
    let source = Scripted::start(async |before, mut conversation: Conversation| {
        conversation.receive().await;
        if before < 3 {
            conversation.send(push(RULES, "1", &["ns/a@1"])).await;
            return Status::ok("");
        }
        conversation.send(push(RULES, "1", &["ns/b@1"])).await;
        conversation.wait().await
    })
    .await;
    let (sink, mut changes) = start(&[RULES]);
    let _dial = dial(&sink, source.listening.address, eager());
    assert_eq!(accept(&mut changes).await, (true, named(&["ns/a@1"]), vec![]));
    assert_eq!(accept(&mut changes).await, (false, named(&["ns/b@1"]), named(&["ns/a"])));
    assert_eq!(source.streams(), 4);
}

#[tokio::test]
async fn an_increment_without_a_base_begins_the_stream_anew() {
    let source = Scripted::start(async |before, mut conversation: Conversation| {
        conversation.receive().await;
        match before {
            0 => {
                conversation.send(push(RULES, "1", &["ns/a@1"])).await;
                conversation.receive().await;
                return Status::ok("");
            }
            1 => conversation.send(increment(RULES, "1", &["ns/b@1"], &[])).await,
            _ => conversation.send(push(RULES, "1", &["ns/b@1"])).await,
        }
        conversation.wait().await
    })
    .await;
    let (sink, mut changes) = start(&[RULES]);
    let _dial = dial(&sink, source.listening.address, eager());
    accept(&mut changes).await;
    assert_eq!(accept(&mut changes).await, (false, named(&["ns/b@1"]), named(&["ns/a"])));
    assert_eq!(source.streams(), 3);
}

#[tokio::test]
async fn a_push_longer_than_the_limit_leaves_the_rest_as_it_is() {
    let source = Scripted::start(async |_, mut conversation: Conversation| {
        conversation.receive().await;
        conversation.send(push(HANDLERS, "1", &["ns/h@1"])).await;
        let mut large = push(RULES, "2", &["ns/a@1"]);
        large.resources[0].body.as_mut().unwrap().value = vec![7; 200_000].into();
        conversation.send(large).await;
        conversation.wait().await
    })
    .await;
    let (sink, mut changes) = start(&[RULES, HANDLERS]);
    let options = DialOptions::default().first_wait(Duration::from_millis(50)).max_message_size(100_000);
    let _dial = dial(&sink, source.listening.address, options);
    accept(&mut changes).await;
    sleep(Duration::from_millis(800)).await;
    assert_eq!((held(&sink, RULES).await, held(&sink, HANDLERS).await), (0, 1));
    let streams = source.streams();
    assert!(
        (2..=7).contains(&streams),
        "a good push in front does not make it a hot loop: {streams} streams"
    );
}

/// Resources without content are two bytes each when they arrive, and some hundred when they are decoded.
#[tokio::test]
async fn pushes_beyond_the_memory_for_them_leave_the_rest_as_it_is() {
    let source = Scripted::start(async |_, mut conversation: Conversation| {
        conversation.receive().await;
        conversation.send(push(HANDLERS, "1", &["ns/h@1"])).await;
        let mut many = push(RULES, "2", &[]);
        many.resources = vec![Resource::default(); 100_000];
        conversation.send(many).await;
        conversation.wait().await
    })
    .await;
    let (sink, mut changes) = start(&[RULES, HANDLERS]);
    let options = DialOptions::default().first_wait(Duration::from_millis(5));
    let _dial = dial(&sink, source.listening.address, options.memory(Some(StreamMemory::new(1 << 20))));
    accept(&mut changes).await;
    let dialed_again = async {
        while source.streams() < 2 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), dialed_again).await.unwrap();
    assert_eq!((held(&sink, RULES).await, held(&sink, HANDLERS).await), (0, 1));
}

#[tokio::test]
async fn collections_that_are_never_answered_do_not_hold_up_others() {
    let source = Scripted::start(async |_, mut conversation: Conversation| {
        while let Some(request) = conversation.receive().await {
            if request.collection == RULES && request.response_nonce.is_empty() {
                conversation.send(push(RULES, "1", &["ns/a@1"])).await;
            }
        }
        Status::ok("")
    })
    .await;
    let (sink, mut changes) = start(&[RULES, HANDLERS]);
    let _dial = dial(&sink, source.listening.address, eager());
    accept(&mut changes).await;
    until(&sink, |status| status.collections[1].synced && !status.collections[0].synced).await;
}

/// As recorded of Galley: 900 KiB are read, 1100 KiB are not.
#[tokio::test]
async fn requests_up_to_1_mib_are_read() {
    let source = source();
    set(&source, RULES, &["ns/a@1"]);
    let listening = serve(source_routes(&source)).await;
    let ask = async |kib: usize| {
        let mut client = client(listening.address).await;
        let mut large = request(RULES);
        let node = large.sink_node.get_or_insert_default();
        node.annotations.insert("blob".to_owned(), "x".repeat(kib << 10));
        let requests = futures_util::stream::iter([large]).chain(futures_util::stream::pending());
        let mut pushes = client.establish_resource_stream(requests).await.unwrap().into_inner();
        pushes.message().await.map(|push| push.unwrap().resources.len())
    };
    assert_eq!(ask(900).await.unwrap(), 1);
    assert_eq!(ask(1100).await.unwrap_err().code(), Code::OutOfRange);
}

/// Passes bytes on between a sink and a source, slowly, a few at a time.
async fn drip(to: SocketAddr, bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((sink, _)) = listener.accept().await {
            let source = TcpStream::connect(to).await.unwrap();
            let ((mut from_sink, mut to_sink), (mut from_source, mut to_source)) =
                (sink.into_split(), source.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_sink, &mut to_source).await });
            tokio::spawn(async move {
                let mut buffer = vec![0; bytes];
                while let Ok(read @ 1..) = from_source.read(&mut buffer).await {
                    to_sink.write_all(&buffer[..read]).await.unwrap();
                    sleep(Duration::from_millis(1)).await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_push_that_arrives_drop_by_drop_is_taken_when_it_is_whole() {
    let source = source();
    let many: Vec<String> = (0..300).map(|n| format!("ns/r{n:03}@1")).collect();
    set(&source, RULES, &many.iter().map(String::as_str).collect::<Vec<_>>());
    let listening = serve(source_routes(&source)).await;
    let (sink, mut changes) = start(&[RULES]);
    let _dial = dial(&sink, drip(listening.address, 100).await, eager());
    assert_eq!(accept(&mut changes).await, (true, many, vec![]));
}

/// Relays one stream after another to a source; the first is cut off after `messages` messages in both directions together.
async fn relay(source: SocketAddr, cut: usize) -> Scripted {
    Scripted::start(move |before, mut conversation: Conversation| async move {
        let (requests, mut outgoing) = tokio::sync::mpsc::channel(16);
        let mut client = client(source).await;
        let requested = futures_util::stream::poll_fn(move |context| outgoing.poll_recv(context));
        let mut pushes = client.establish_resource_stream(requested).await.unwrap().into_inner();
        let mut messages = 0;
        while before > 0 || messages < cut {
            tokio::select! {
                request = conversation.receive() => match request {
                    Some(request) => requests.send(request).await.unwrap(),
                    None => break,
                },
                push = pushes.message() => match push.unwrap() {
                    Some(push) => conversation.send(push).await,
                    None => break,
                },
            }
            messages += 1;
        }
        Status::unavailable("cut")
    })
    .await
}

fn equal(status: &mixer_adapter_config::source::SourceStatus, source: &ConfigServer) -> bool {
    let catalogue = source.catalogue();
    status.collections.iter().all(|collection| {
        catalogue
            .snapshot(&collection.collection)
            .is_some_and(|snapshot| collection.version == snapshot.version().to_string())
    })
}

#[tokio::test]
async fn cut_off_after_any_of_20_messages_the_sink_comes_to_hold_what_the_source_holds() {
    for cut in 0..20 {
        let source = source();
        for collection in [RULES, HANDLERS, INSTANCES] {
            set(&source, collection, &["ns/a@1", "ns/b@1"]);
        }
        let listening = serve(source_routes(&source)).await;
        let relay = relay(listening.address, cut).await;
        let (sink, mut changes) = Sink::start(SinkOptions::new("sink", [RULES, HANDLERS, INSTANCES]), None);
        let _dial = dial(&sink, relay.listening.address, eager());
        tokio::spawn(async move {
            while let Some(offer) = changes.recv().await {
                offer.accept();
            }
        });
        for version in 2..6 {
            sleep(Duration::from_millis(5)).await;
            set(&source, RULES, &[&format!("ns/a@{version}")]);
            set(&source, HANDLERS, &["ns/a@1", &format!("ns/c{version}@1")]);
        }
        set(&source, INSTANCES, &[]);
        timeout(Duration::from_secs(10), until(&sink, |status| equal(status, &source)))
            .await
            .unwrap_or_else(|_| panic!("cut after {cut} messages"));
        // The sink sends and receives at least nine messages: requests, pushes and answers of three collections.
        if cut < 9 {
            let reconnected = async {
                while relay.streams() < 2 {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            let reconnected = timeout(Duration::from_secs(10), reconnected).await;
            assert!(reconnected.is_ok(), "it was cut after {cut} messages");
        }
    }
}
