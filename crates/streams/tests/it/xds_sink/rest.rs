//! A server that is polled over HTTP.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{Router, extract::State, http::StatusCode, http::Uri};
use mixer_adapter_config::{Kind, Offer, ResourceName, ValidationError};
use mixer_adapter_net::grpc::StreamMemory;
use mixer_adapter_streams::{
    stream::{
        Peer, RawChange,
        sink::{Mode, Sink},
    },
    xds::sink::{PollOptions, poll},
};
use serde_json::{Value as Json, json};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    client::{options, somebody},
    messages::*,
};

const SOON: Duration = Duration::from_secs(10);

/// Returns the scripted answers in turn, and then 304.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    asked: Arc<Mutex<Vec<(String, Json)>>>,
    at_once: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Server {
    async fn answer(State(server): State<Self>, uri: Uri, body: String) -> (StatusCode, String) {
        server.most.fetch_max(server.at_once.fetch_add(1, SeqCst) + 1, SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        server.asked.lock().unwrap().push((uri.path().to_owned(), serde_json::from_str(&body).unwrap()));
        let answer = server.answers.lock().unwrap().pop_front();
        let (code, body) = answer.unwrap_or((304, String::new()));
        server.at_once.fetch_sub(1, SeqCst);
        (StatusCode::from_u16(code).unwrap(), body)
    }

    /// The requests so far, once there are `count`.
    async fn asked(&self, count: usize) -> Vec<(String, Json)> {
        timeout(SOON, async {
            while self.asked.lock().unwrap().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
        self.asked.lock().unwrap().clone()
    }
}

/// A sink of rules that polls a server with these answers.
async fn follow(
    collections: &[&str],
    answers: Vec<(u16, String)>,
) -> (Server, mpsc::Receiver<Offer<RawChange>>, DropGuard) {
    follow_within(collections, answers, StreamMemory::new(usize::MAX)).await
}

/// As `follow`, with limited memory for answers.
async fn follow_within(
    collections: &[&str],
    answers: Vec<(u16, String)>,
    memory: StreamMemory,
) -> (Server, mpsc::Receiver<Offer<RawChange>>, DropGuard) {
    let server = Server::default();
    server.answers.lock().unwrap().extend(answers);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = Peer::new(listener.local_addr().unwrap().to_string()).called("xds+http");
    let router = Router::new().fallback(Server::answer).with_state(server.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let (sink, changes) = Sink::start(options(Mode::Full, collections), None);
    let stop = CancellationToken::new();
    let polling = PollOptions::default().refresh_delay(Duration::from_millis(30));
    tokio::spawn(poll(sink, peer, somebody(), polling, memory, stop.clone()));
    (server, changes, stop.drop_guard())
}

fn rules(version: &str, names: &[&str]) -> (u16, String) {
    let rule = |name: &&str| {
        json!({
            "@type": "type.googleapis.com/istio.mcp.v1alpha1.Resource",
            "metadata": { "name": name, "version": version },
            "body": { "@type": "type.googleapis.com/istio.policy.v1beta1.Rule", "match": "true" }
        })
    };
    let resources: Vec<Json> = names.iter().map(rule).collect();
    (
        200,
        json!({ "versionInfo": version, "typeUrl": RULE, "nonce": version, "resources": resources })
            .to_string(),
    )
}

async fn next(changes: &mut mpsc::Receiver<Offer<RawChange>>) -> (Offer<RawChange>, String) {
    let offer = timeout(SOON, changes.recv()).await.unwrap().unwrap();
    let change = offer.content();
    let named = change.resources.iter().map(|resource| format!(" {}@{}", resource.name, resource.version));
    let removed = change.removed.iter().map(|name| format!(" -{name}"));
    let told = named.chain(removed).collect::<String>();
    (offer, told.trim().to_owned())
}

#[tokio::test]
async fn what_is_answered_is_acknowledged_with_the_next_question() {
    let answers = vec![rules("1", &["ns/a", "ns/b"]), rules("2", &["ns/a"])];
    let (server, mut changes, _polling) = follow(&[RULES], answers).await;
    let (offer, told) = next(&mut changes).await;
    assert_eq!(told, "ns/a@1 ns/b@1");
    offer.accept();
    let (offer, told) = next(&mut changes).await;
    assert_eq!(told, "ns/a@2 -ns/b");
    offer.accept();
    let count = server.asked.lock().unwrap().len();
    let asked = server.asked(count + 2).await;
    assert!(asked.iter().all(|(path, body)| path == "/v3/discovery:rules" && body["typeUrl"] == RULE));
    assert_eq!(asked[0].1.get("versionInfo"), None);
    assert_eq!(asked[0].1["node"]["metadata"]["GENERATOR"], "api");
    let last = &asked.last().unwrap().1;
    assert_eq!((&last["versionInfo"], &last["responseNonce"]), (&json!("2"), &json!("2")));
}

#[tokio::test]
async fn a_refusal_goes_with_the_next_question_and_the_version_accepted_before() {
    let answers = vec![rules("1", &["ns/a"]), rules("2", &["ns/a"])];
    let (server, mut changes, _polling) = follow(&[RULES], answers).await;
    next(&mut changes).await.0.accept();
    let (offer, _) = next(&mut changes).await;
    offer.refuse(vec![ValidationError::error("bad").of(ResourceName::new("a", Kind::Rule, "ns"))]);
    let count = server.asked.lock().unwrap().len();
    let asked = server.asked(count + 3).await;
    let last = &asked.last().unwrap().1;
    assert_eq!((&last["versionInfo"], &last["responseNonce"]), (&json!("1"), &json!("2")));
    assert_eq!(last["errorDetail"]["message"], format!("{RULES}: ns/a: bad"));
}

#[tokio::test]
async fn answers_that_are_none_leave_what_there_is() {
    let bad = [(503, "busy".to_owned()), (304, String::new()), (200, "{".to_owned()), (404, String::new())];
    let answers = [vec![rules("1", &["ns/a"])], bad.to_vec(), vec![rules("2", &["ns/b"])]].concat();
    let (_server, mut changes, _polling) = follow(&[RULES], answers).await;
    let (offer, told) = next(&mut changes).await;
    assert_eq!(told, "ns/a@1");
    offer.accept();
    let (offer, told) = next(&mut changes).await;
    assert_eq!(told, "ns/b@2 -ns/a", "nothing came in between");
    offer.accept();
}

#[tokio::test]
async fn an_answer_counts_as_what_it_is_decoded_to_in_the_memory_of_pushes() {
    let names: Vec<String> = (0..500).map(|number| format!("ns/rule{number}")).collect();
    let large = rules("1", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let memory = StreamMemory::new(4 * large.1.len());
    let answers = vec![large, rules("2", &["ns/a"])];
    let (_server, mut changes, _polling) = follow_within(&[RULES], answers, memory).await;
    let (offer, told) = next(&mut changes).await;
    assert_eq!(told, "ns/a@2");
    offer.accept();
}

#[tokio::test]
async fn one_request_of_a_type_is_outstanding_at_a_time() {
    let (server, _changes, _polling) = follow(&[RULES, HANDLERS], vec![]).await;
    let asked = server.asked(8).await;
    assert!(server.most.load(SeqCst) <= 2, "one for each type");
    for path in ["/v3/discovery:handlers", "/v3/discovery:rules"] {
        let count = asked.iter().filter(|(other, _)| other == path).count();
        assert!(count >= 3, "{path}: {count}");
    }
}
