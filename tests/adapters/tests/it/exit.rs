//! The end of a server whose handlers and clients would keep it for ever.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use bytes::Bytes;
use mixer_adapter::{
    prost::Message as _,
    template::{ListEntry, Template as _, listentry, listentry::HandleListEntryRequest},
    value::Value,
};
use test_adapters::probe::Params;

use crate::{
    program::Server,
    support::{self, Client, any, framed, post},
};

const GRACE: &str = "1s";
/// Far above `--grace` and a second, the limit of a shutdown (docs/operating/reload-and-shutdown.md#shutdown), so that a busy machine fails nothing: what
/// these servers would wait for never ends.
const SOON: Duration = Duration::from_secs(30);
const LONG_GRACE: &str = "1h";

/// What a handler logs before it blocks, and the server when a signal arrives.
const BLOCKING: &str = "an event of the author";
const STOPPING: &str = "stopping";

fn request(command: &str) -> Bytes {
    let name = "entry.instance.istio-system".to_owned();
    let instance = Some(listentry::InstanceMsg { name, value: Some(Value::from(command)) });
    let config = Params { ledger: "exit".to_owned(), ..Params::default() };
    let request = HandleListEntryRequest { instance, adapter_config: any(&config), dedup_id: String::new() };
    framed(&request.encode_to_vec())
}

/// Starts a server with two threads for calls, both of which a handler blocks for ever.
async fn with_blocked_threads(grace: &str) -> Server {
    let mut server = Server::start(&["--grace", grace, "--threads", "2"]);
    // Connections are spread over the threads, but a busy thread passes calls on: those of two connections may block the same one.
    for _ in 0..8 {
        let address = server.address;
        tokio::spawn(async move {
            Client::connect(address).await.raw(post(ListEntry::METHOD), request("block")).await
        });
    }
    for _ in 0..2 {
        server.line(BLOCKING);
    }
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_every_thread_delay_the_end_by_the_grace_period_only() {
    let mut server = with_blocked_threads(GRACE).await;
    server.signal("TERM");
    assert_eq!(server.exit_code_within(SOON), Some(0), "the calls are given up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_a_server_whose_threads_are_blocked() {
    for first in ["TERM", "INT"] {
        let mut server = with_blocked_threads(LONG_GRACE).await;
        server.signal(first);
        server.line(STOPPING);
        server.signal("TERM");
        assert_eq!(server.exit_code_within(SOON), Some(130), "after {first}");
    }
}

/// Rules that pass the path of a request to the probe.
const CONFIG: &str = "
kind: handler
metadata: {name: h}
spec: {compiledAdapter: probe, params: {ledger: exit}}
---
kind: instance
metadata: {name: i}
spec: {compiledTemplate: listentry, params: {value: request.path}}
---
kind: rule
metadata: {name: r}
spec: {actions: [{handler: h, instances: [i]}]}
";

/// Explanations call adapters on the threads that also run the shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_that_cannot_run_is_ended_by_the_thread_of_signals() {
    let config = tempfile::tempdir().unwrap();
    std::fs::write(config.path().join("config.yaml"), CONFIG).unwrap();
    let mut server = Server::start(&["--grace", GRACE, "--config", config.path().to_str().unwrap()]);
    server.line("configuration applied");
    let mut unanswered = Vec::new();
    for _ in 0..2 {
        let mut admin = TcpStream::connect(server.admin).unwrap();
        admin.write_all(b"GET /explain?request.path=block HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        unanswered.push(admin);
        server.line(BLOCKING);
    }
    server.signal("TERM");
    assert_eq!(server.exit_code_within(SOON), Some(1), "not in order");
}

/// Connects a client that reads no answer, and returns when its call was answered.
async fn unread(address: SocketAddr) -> impl Sized {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut client = h2::client::Builder::new();
    let (mut requests, connection) =
        client.initial_window_size(0).handshake::<_, Bytes>(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let (response, mut body) = requests.send_request(post(ListEntry::METHOD), false).unwrap();
    body.send_data(request("allow"), true).unwrap();
    let head = response.await.unwrap();
    (head, requests, connection)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_send_nothing_do_not_delay_the_end() {
    let mut server = Server::start(&["--grace", LONG_GRACE]);
    let mut silent = vec![TcpStream::connect(server.address).unwrap()];
    for part in [
        "",
        "GET /",
        "GET /healthz HTTP/1.1\r\nhost:",
        "POST /explain HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{",
    ] {
        let mut admin = TcpStream::connect(server.admin).unwrap();
        admin.write_all(part.as_bytes()).unwrap();
        silent.push(admin);
    }
    // An answer to a later connection: those before it are accepted.
    let mut admin = TcpStream::connect(server.admin).unwrap();
    admin.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    admin.read_to_end(&mut Vec::new()).unwrap();
    server.signal("TERM");
    assert_eq!(server.exit_code_within(SOON), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_not_read_delays_the_end_by_the_grace_period_only() {
    let mut server = Server::start(&["--grace", GRACE]);
    let _client = unread(server.address).await;
    server.signal("TERM");
    assert_eq!(server.exit_code_within(SOON), Some(0));
}

/// The log has no reader once its pipe and the channel of `Server` are full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_nobody_reads_delays_neither_calls_nor_the_end() {
    let mut server = Server::start(&["--grace", GRACE, "--log", "trace,h2=trace"]);
    let client = Client::connect(server.address).await;
    let dropped = "mixer_adapter_log_lines_total{result=\"dropped\"} ";
    let calls = async {
        loop {
            for _ in 0..50 {
                client.raw(post(ListEntry::METHOD), request("allow")).await.unwrap();
            }
            let (_, metrics) = support::http::get(server.admin, "/metrics").await;
            let count = metrics.lines().find_map(|line| line.strip_prefix(dropped)).expect(dropped);
            if count != "0" {
                break;
            }
        }
    };
    tokio::time::timeout(SOON, calls).await.expect("calls are answered");
    server.signal("TERM");
    assert_eq!(server.exit_code_within(SOON), Some(0));
}
