//! Limits on what clients hold without being served, and who gives way when there is too little.

use std::time::Duration;

use bytes::Bytes;
use mixer_adapter::{
    prost::Message as _,
    service::ServerOptions,
    template::{ListEntry, Template as _},
    tonic::Code,
};
use mixer_adapter_host::handler::TableLimits;
use test_adapters::{Probe, ledger};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};

use super::{
    requests::{entry, probe, run_command, session, telling},
    support::{Client, ClientError, Serving, any, post, until},
};

async fn with_options(options: ServerOptions) -> Serving {
    Serving::with(|adapters| adapters.add::<Probe>(), options, TableLimits::default()).await
}

/// A call of which only the headers are sent, and part of the message.
fn half_sent(client: &Client, part: &'static [u8]) -> JoinHandle<Result<(), ClientError>> {
    let client = client.clone();
    tokio::spawn(async move { client.exchange_unfinished(post(ListEntry::METHOD), part).await })
}

async fn hits(serving: &Serving, limit: &str) -> f64 {
    serving.metric(&format!("mixer_adapter_limits_hit_total{{limit=\"{limit}\"}}")).await
}

/// A socket on which nothing is sent; ends when the server closes it.
async fn silent(serving: &Serving) -> JoinHandle<()> {
    let mut socket = TcpStream::connect(serving.grpc).await.unwrap();
    tokio::spawn(async move {
        let mut received = Vec::new();
        let _ = socket.read_to_end(&mut received).await;
    })
}

fn assert_exhausted<T: std::fmt::Debug>(result: Result<T, ClientError>, limit: &str) {
    let failure = result.unwrap_err();
    assert_eq!(failure.code, Code::ResourceExhausted, "{}", failure.message);
    assert!(failure.message.contains(limit), "{}", failure.message);
}

#[tokio::test]
async fn calls_without_their_request_take_no_slot() {
    let serving = with_options(ServerOptions::default().max_concurrent_calls(1)).await;
    let client = serving.connect().await;
    let calls: Vec<_> = (0..50).map(|_| half_sent(&client, b"\0\0")).collect();
    assert!(run_command(&client, "no slot", "allow").await.is_ok());
    assert!(run_command(&serving.connect().await, "no slot", "allow").await.is_ok());
    assert!(calls.iter().all(|call| !call.is_finished()));
}

#[tokio::test]
async fn calls_without_their_request_are_bounded_and_shared() {
    let serving = with_options(ServerOptions::default().max_waiting_calls(3)).await;
    let (many, few) = (serving.connect().await, serving.connect().await);
    let first: Vec<_> = (0..3).map(|_| half_sent(&many, b"\0\0")).collect();
    assert_exhausted(half_sent(&many, b"\0\0").await.unwrap(), "max-waiting-calls");
    let other = half_sent(&few, b"\0\0");
    until("the connection with the most loses one", || first.iter().any(JoinHandle::is_finished)).await;
    assert_eq!(first.iter().filter(|call| call.is_finished()).count(), 1);
    assert!(!other.is_finished());
    assert_eq!(hits(&serving, "max-waiting-calls").await, 2.0);
    assert!(run_command(&many, "waiting", "allow").await.is_ok(), "whole calls do not wait");
}

#[tokio::test]
async fn a_request_that_does_not_arrive_is_given_up() {
    let body_timeout = Duration::from_millis(50);
    let serving = with_options(ServerOptions::default().body_timeout(body_timeout)).await;
    let client = serving.connect().await;
    let failure = half_sent(&client, b"\0\0").await.unwrap().unwrap_err();
    assert_eq!(failure.code, Code::DeadlineExceeded);
    assert_eq!(failure.message, "the request did not arrive within 50ms");
    for method in ["Check", "Watch"] {
        let health = post(&format!("/grpc.health.v1.Health/{method}"));
        let failure = client.exchange_unfinished(health, b"").await.unwrap_err();
        assert_eq!(failure.message, "the request did not arrive within 50ms", "{method}");
    }
    assert_eq!(hits(&serving, "body-timeout").await, 3.0);
    assert!(run_command(&client, "body timeout", "allow").await.is_ok(), "the connection stays");
}

#[tokio::test]
async fn the_connection_with_the_most_calls_gives_way() {
    let serving = with_options(ServerOptions::default().max_concurrent_calls(3)).await;
    let (many, few, ledger) = (serving.connect().await, serving.connect().await, ledger("gives way"));
    let mut calls = Vec::new();
    for number in 1..=3 {
        calls.push(telling(&many, "gives way", "hang"));
        until("the call is served", || ledger.entered() == number).await;
    }
    assert_exhausted(run_command(&many, "gives way", "allow").await, "max-calls");
    assert!(run_command(&few, "gives way", "allow").await.is_ok());
    assert_exhausted(calls.pop().unwrap().await.unwrap(), "max-calls");
    assert_eq!(ledger.abandoned(), 1, "the newest one, and no other");
    assert!(calls.iter().all(|call| !call.is_finished()));
}

#[tokio::test]
async fn memory_is_taken_for_bytes_that_have_arrived() {
    let options = ServerOptions::default().max_call_bytes(64 << 10);
    let serving = with_options(options).await;
    let client = serving.connect().await;
    // Each announces 4 MB.
    let announced: Vec<_> = (0..100).map(|_| half_sent(&client, b"\0\0\x3d\x09\0")).collect();
    assert!(run_command(&client, "announced", "allow").await.is_ok());
    assert!(announced.iter().all(|call| !call.is_finished()));
    assert_eq!(hits(&serving, "memory-limit").await, 0.0);
}

#[tokio::test]
async fn the_connection_with_the_most_bytes_gives_way() {
    let options = ServerOptions::default().max_call_bytes(64 << 10);
    let serving = with_options(options).await;
    let (large, small) = (serving.connect().await, serving.connect().await);
    static PART: [u8; 30_000] = {
        let mut part = [0; 30_000];
        part[2] = 16;
        part
    };
    let first = half_sent(&large, &PART);
    let second = half_sent(&large, &PART);
    let third = half_sent(&small, &PART);
    until("one has to go", || first.is_finished() || second.is_finished() || third.is_finished()).await;
    assert!(!third.is_finished(), "the other connection has fewer");
    let given_up = if first.is_finished() { first } else { second };
    assert_exhausted(given_up.await.unwrap(), "memory-limit");
    assert!(hits(&serving, "memory-limit").await >= 1.0);
    let whole = entry(any(&probe("bytes")), &"x".repeat(80_000)).encode_to_vec();
    assert_exhausted(small.send(ListEntry::METHOD, &whole).await, "memory-limit");
    assert!(run_command(&large, "bytes", "allow").await.is_ok(), "small calls need none of it");
}

#[tokio::test]
async fn silent_connections_give_way_to_new_ones() {
    let serving = with_options(ServerOptions::default().max_connections(3)).await;
    let kept = serving.connect().await;
    assert_eq!(kept.create_session(session(any(&probe("silent")))).await.status.unwrap().code, 0);
    let (one, other) = (silent(&serving).await, silent(&serving).await);
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(serving.connect().await);
        assert!(run_command(&clients[clients.len() - 1], "silent", "allow").await.is_ok());
    }
    one.await.unwrap();
    other.await.unwrap();
    for client in &clients[..3] {
        client.ended().await;
    }
    assert!(run_command(&kept, "silent", "allow").await.is_ok(), "a connection with a session is not silent");
    assert!(hits(&serving, "max-connections").await >= 2.0);
}

#[tokio::test]
async fn the_connection_that_was_silent_for_the_longest_gives_way_by_goaway() {
    let serving = with_options(ServerOptions::default().max_connections(3)).await;
    let (busy, first, second) = (serving.connect().await, serving.connect().await, serving.connect().await);
    let ledger = ledger("longest");
    for client in [&first, &second] {
        assert!(run_command(client, "longest", "allow").await.is_ok());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let call = telling(&busy, "longest", "wait");
    until("the call is served", || ledger.entered() == 3).await;
    assert!(run_command(&serving.connect().await, "longest", "allow").await.is_ok());
    first.ended().await;
    assert!(run_command(&second, "longest", "allow").await.is_ok());
    ledger.open_gate();
    assert!(call.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_connection_without_its_preface_is_ended() {
    let handshake_timeout = Duration::from_millis(50);
    let serving = with_options(ServerOptions::default().handshake_timeout(handshake_timeout)).await;
    let client = serving.connect().await;
    silent(&serving).await.await.unwrap();
    let mut slow = TcpStream::connect(serving.grpc).await.unwrap();
    slow.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    let mut received = Vec::new();
    let _ = slow.read_to_end(&mut received).await;
    assert_eq!(hits(&serving, "handshake-timeout").await, 2.0);
    assert!(run_command(&client, "preface", "allow").await.is_ok(), "who has sent it may be silent");
}

#[tokio::test]
async fn connections_from_one_address_can_be_limited() {
    let options = ServerOptions::default().max_connections_per_peer(Some(1));
    let serving = with_options(options).await;
    let first = serving.connect().await;
    assert!(run_command(&first, "per peer", "allow").await.is_ok());
    silent(&serving).await.await.unwrap();
    assert_eq!(hits(&serving, "max-connections-per-peer").await, 1.0);
    assert!(run_command(&first, "per peer", "allow").await.is_ok());
}

#[tokio::test]
async fn the_settings_of_a_connection_have_its_share_of_all_calls() {
    let serving = with_options(ServerOptions::default()).await;
    let mut open = Vec::new();
    for number in 1..=130 {
        let stream = TcpStream::connect(serving.grpc).await.unwrap();
        let (requests, mut connection) = h2::client::handshake(stream).await.unwrap();
        // The answer to a ping follows the settings.
        let mut ping = connection.ping_pong().unwrap();
        let pong = ping.ping(h2::Ping::opaque());
        tokio::select! {
            pong = pong => drop(pong.unwrap()),
            ended = &mut connection => panic!("{ended:?}"),
        }
        let announced = connection.max_concurrent_send_streams();
        match number {
            1..=64 => assert_eq!(announced, 1_024, "of connection {number}"),
            128 => assert_eq!(announced, 512),
            _ => assert!((504..1_024).contains(&announced), "{announced} of connection {number}"),
        }
        open.push((requests, connection));
    }
}

/// A call whose client never lets the server send its answer.
async fn unread(serving: &Serving, ledger: &str) -> JoinHandle<Result<(), h2::Error>> {
    let stream = TcpStream::connect(serving.grpc).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let (mut requests, connection) =
        builder.initial_window_size(0).handshake::<_, Bytes>(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let (response, mut request) = requests.send_request(post(ListEntry::METHOD), false).unwrap();
    let message = entry(any(&probe(ledger)), "allow").encode_to_vec();
    let mut frame = vec![0, 0, 0, 0, u8::try_from(message.len()).unwrap()];
    frame.extend(message);
    request.send_data(frame.into(), true).unwrap();
    let response = response.await.unwrap();
    tokio::spawn(async move {
        // Holds the answer and the connection.
        let (_response, _requests) = (response, requests);
        connection.await.unwrap()
    })
}

#[tokio::test]
async fn a_call_counts_until_its_answer_is_written() {
    let serving = with_options(ServerOptions::default().max_concurrent_calls(1)).await;
    let unread = unread(&serving, "unread").await;
    // Nobody has more than one.
    assert_exhausted(run_command(&serving.connect().await, "unread", "allow").await, "max-calls");
    unread.abort();
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_cut_off() {
    let write_timeout = Duration::from_millis(100);
    let serving = with_options(ServerOptions::default().write_timeout(write_timeout)).await;
    let reads = serving.connect().await;
    let unread = unread(&serving, "write timeout").await;
    // Ends with the connection.
    let _ = unread.await.unwrap();
    assert_eq!(hits(&serving, "write-timeout").await, 1.0);
    assert!(run_command(&reads, "write timeout", "allow").await.is_ok());
}

#[tokio::test]
async fn the_head_of_a_request_of_the_admin_port_is_limited_in_size() {
    const MAX: usize = 64 << 10;
    let serving = with_options(ServerOptions::default()).await;
    let mut admin = TcpStream::connect(serving.admin).await.unwrap();
    let head = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}", "a".repeat(MAX));
    admin.write_all(&head.as_bytes()[..MAX]).await.unwrap();
    let mut response = String::new();
    admin.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 431 "), "{response}");
}

#[tokio::test]
async fn the_whole_shutdown_is_limited() {
    let serving = with_options(ServerOptions::default().grace(Duration::from_millis(200))).await;
    let (client, ledger) = (serving.connect().await, ledger("whole shutdown"));
    let _calls = (telling(&client, "whole shutdown", "hang"), half_sent(&client, b"\0\0"));
    until("the call is served", || ledger.entered() == 1).await;
    let _silent = silent(&serving).await;
    let mut half_sent_requests = Vec::new();
    for part in [
        "POST /explain HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{",
        "GET /",
        "",
    ] {
        let mut admin = TcpStream::connect(serving.admin).await.unwrap();
        admin.write_all(part.as_bytes()).await.unwrap();
        half_sent_requests.push(admin);
    }
    assert_eq!(serving.get("/healthz").await.0, 200);
    tokio::time::timeout(Duration::from_secs(5), serving.stop()).await.unwrap();
}
