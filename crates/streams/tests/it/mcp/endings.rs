//! How streams end, on either side and for whatever reason, and what is left then.

use std::{net::SocketAddr, time::Duration};

use mixer_adapter_streams::{
    proto::istio::mcp::v1alpha1::{
        RequestResources, Resources, resource_source_client::ResourceSourceClient,
    },
    stream::sink::{Sink, SinkOptions},
};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tonic::{Code, Status, Streaming, transport::Endpoint};

use super::{
    messages::*,
    scripted::{Conversation, Scripted},
    sockets::{accept, dial, eager, named, serve, set, source, source_routes, start, until},
};

const SOON: Duration = Duration::from_secs(10);

/// A sink by hand. Dropping the first ends its half of the stream.
async fn stream(source: SocketAddr) -> (mpsc::Sender<RequestResources>, Streaming<Resources>) {
    let endpoint = Endpoint::from_shared(format!("http://{source}")).unwrap();
    let mut client = ResourceSourceClient::new(endpoint.connect().await.unwrap());
    let (requests, mut outgoing) = mpsc::channel(8);
    let outgoing = futures_util::stream::poll_fn(move |context| outgoing.poll_recv(context));
    (requests, client.establish_resource_stream(outgoing).await.unwrap().into_inner())
}

async fn next(pushes: &mut Streaming<Resources>) -> Result<Option<Resources>, Status> {
    timeout(SOON, pushes.message()).await.unwrap()
}

/// TestServerSource: the end of the sink's half is OK, after several collections; TestWatchCancel: nothing is left of what it
/// asked for
#[tokio::test]
async fn a_sink_that_ends_its_half_ends_the_stream_well() {
    let source = source();
    for collection in [RULES, HANDLERS, INSTANCES] {
        set(&source, collection, &["ns/a@1"]);
    }
    let listening = serve(source_routes(&source)).await;
    let (requests, mut pushes) = stream(listening.address).await;
    for collection in [RULES, HANDLERS, INSTANCES] {
        requests.send(request(collection)).await.unwrap();
        let push = next(&mut pushes).await.unwrap().unwrap();
        assert_eq!(push.collection, collection);
        requests.send(ack(collection, &push.nonce)).await.unwrap();
    }
    assert_eq!(source.sinks().len(), 1);
    drop(requests);
    assert_eq!(next(&mut pushes).await.unwrap(), None);
    timeout(SOON, async {
        while !source.sinks().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    set(&source, RULES, &["ns/a@2"]);
}

/// TestSourceUnsupportedTypeError
#[tokio::test]
async fn a_collection_that_is_not_served_ends_the_stream_with_its_name() {
    let source = source();
    let listening = serve(source_routes(&source)).await;
    let (requests, mut pushes) = stream(listening.address).await;
    requests.send(request("istio/none")).await.unwrap();
    let status = next(&mut pushes).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, "unsupported collection \"istio/none\"")
    );
}

/// TestSourceSendError and TestSourceReceiveError: the connection breaks while a push is under way, and before an answer
#[tokio::test]
async fn a_sink_that_is_gone_is_forgotten_and_the_next_begins_anew() {
    let source = source();
    set(&source, RULES, &["ns/a@1"]);
    let listening = serve(source_routes(&source)).await;
    for _ in 0..2 {
        let (requests, mut pushes) = stream(listening.address).await;
        requests.send(request(RULES)).await.unwrap();
        let push = next(&mut pushes).await.unwrap().unwrap();
        assert_eq!((push.nonce.as_str(), names(&push)), ("1", named(&["ns/a@1"])));
    }
    timeout(SOON, async {
        while !source.sinks().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

/// TestClearStatus, TestSourceWatchClosed: also where a request waits for what is not there yet
#[tokio::test]
async fn a_source_that_closes_says_that_it_is_unavailable() {
    let source = source();
    let listening = serve(source_routes(&source)).await;
    let (requests, mut pushes) = stream(listening.address).await;
    requests.send(request(RULES)).await.unwrap();
    timeout(SOON, async {
        while source.sinks().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    source.close();
    assert_eq!(next(&mut pushes).await.unwrap_err().code(), Code::Unavailable);
}

/// TestSinkRecvError: an end without and with an error; the next stream goes on
#[tokio::test]
async fn whatever_a_stream_ended_with_the_next_goes_on() {
    let source = Scripted::start(async |before, mut conversation: Conversation| {
        let stream = before + 1;
        conversation.receive().await;
        let (nonce, resource) = (format!("of {stream}"), format!("ns/a@{stream}"));
        conversation.send(push(RULES, &nonce, &[&resource])).await;
        let answer = conversation.receive().await.unwrap();
        assert_eq!(answer.response_nonce, nonce, "nonces die with their stream");
        match stream {
            1 => Status::ok(""),
            2 => Status::internal("broken"),
            _ => {
                conversation.receive().await;
                Status::ok("")
            }
        }
    })
    .await;
    let (sink, mut changes) = start(&[RULES]);
    let _dial = dial(&sink, source.listening.address, eager());
    for version in ["ns/a@1", "ns/a@2", "ns/a@3"] {
        assert_eq!(accept(&mut changes).await.1, named(&[version]));
    }
}

/// TestConfigZ: before any request, and with the latest ones; TestSink_MetadataID; TestInMemoryUpdater: what was applied is
/// what is shown
#[tokio::test]
async fn a_sink_shows_itself_before_and_after_it_has_asked() {
    let mut options = SinkOptions::new("me", [RULES]);
    options.annotations.insert("k".to_owned(), "v".to_owned());
    let (sink, mut changes) = Sink::start(options, None);
    let status = sink.status().await.unwrap();
    assert_eq!((status.id.as_str(), status.annotations["k"].as_str()), ("me", "v"));
    assert!(status.messages.is_empty() && status.peers.is_empty());
    assert_eq!((status.collections[0].collection.as_str(), status.collections[0].resources), (RULES, 0));

    let source = source();
    set(&source, RULES, &["ns/a@1", "ns/b@1"]);
    let listening = serve(source_routes(&source)).await;
    let _dial = dial(&sink, listening.address, eager());
    accept(&mut changes).await;
    let status = until(&sink, |status| status.messages.len() == 3).await;
    let messages: Vec<_> =
        status.messages.iter().map(|message| (message.kind, &*message.collection)).collect();
    assert_eq!(messages, [("ask", RULES), ("push", RULES), ("ack", RULES)]);
    assert_eq!(status.collections[0].resources, 2);
}
