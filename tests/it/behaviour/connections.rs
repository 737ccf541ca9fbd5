//! Limits on calls and connections, their ages, and the drain of a server.

use std::time::{Duration, Instant};

use mixer_adapter::{
    prost::Message as _,
    service::{ServerOptions, Workers},
    template::{ListEntry, Template as _},
    tonic::Code,
};
use mixer_adapter_host::handler::TableLimits;
use test_adapters::{Probe, ledger};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    requests::{entry, probe, run_command, session, telling},
    support::{Client, Serving, any, until},
};

async fn with_options(options: ServerOptions) -> Serving {
    Serving::with(|adapters| adapters.add::<Probe>(), options, TableLimits::default()).await
}

#[tokio::test]
async fn a_call_over_the_limit_of_the_server_is_refused() {
    let serving = with_options(ServerOptions::default().max_concurrent_calls(2)).await;
    let (one, other, ledger) = (serving.connect().await, serving.connect().await, ledger("max calls"));
    let calls = [telling(&one, "max calls", "wait"), telling(&other, "max calls", "wait")];
    until("two calls are served", || ledger.entered() == 2).await;
    let failure = run_command(&one, "max calls", "allow").await.unwrap_err();
    assert_eq!(failure.code, Code::ResourceExhausted);
    assert_eq!(failure.message, "too many calls are being served (max-calls); try again");
    ledger.open_gate();
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
    assert!(run_command(&one, "max calls", "allow").await.is_ok());
}

#[tokio::test]
async fn a_call_over_the_limit_of_its_connection_waits() {
    let serving = with_options(ServerOptions::default().max_calls_per_connection(1)).await;
    let (client, other, ledger) = (serving.connect().await, serving.connect().await, ledger("max streams"));
    // The client learns the limit with the server's settings.
    assert!(run_command(&client, "max streams", "allow").await.is_ok());
    let first = telling(&client, "max streams", "wait");
    until("the first call is served", || ledger.entered() == 2).await;
    let second = telling(&client, "max streams", "allow");
    assert!(
        run_command(&other, "max streams", "allow").await.is_ok(),
        "other connections have their own limit"
    );
    assert_eq!(ledger.entered(), 3, "the second call is not served yet");
    ledger.open_gate();
    assert!(first.await.unwrap().is_ok());
    assert!(second.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_connection_over_the_limit_waits_while_all_others_are_in_use() {
    let serving = with_options(ServerOptions::default().max_connections(1)).await;
    let (first, ledger) = (serving.connect().await, ledger("max connections"));
    let call = telling(&first, "max connections", "wait");
    until("the call is served", || ledger.entered() == 1).await;
    let address = serving.grpc;
    let second = tokio::spawn(async move {
        let client = Client::connect(address).await;
        run_command(&client, "max connections", "allow").await
    });
    // Accepted in the order of connecting: only after a while can it be seen that the second one waits.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!second.is_finished());
    ledger.open_gate();
    assert!(call.await.unwrap().is_ok());
    assert!(second.await.unwrap().is_ok());
}

#[tokio::test]
async fn an_aged_connection_is_drained() {
    let serving =
        with_options(ServerOptions::default().max_connection_age(Some(Duration::from_millis(100)))).await;
    let (client, ledger) = (serving.connect().await, ledger("age"));
    let call = telling(&client, "age", "wait");
    until("the call is served", || ledger.entered() == 1).await;
    // GOAWAY: the connection takes no more calls.
    let start = Instant::now();
    while run_command(&client, "age", "allow").await.is_ok() {
        assert!(start.elapsed() < Duration::from_secs(5), "the connection is never ended");
    }
    assert!(!call.is_finished());
    ledger.open_gate();
    assert!(call.await.unwrap().is_ok(), "the call in flight finishes");
    client.ended().await;
    assert!(run_command(&serving.connect().await, "age", "allow").await.is_ok());
}

#[tokio::test]
async fn a_call_that_outlasts_the_grace_of_its_aged_connection_is_cut_off() {
    let serving = with_options(
        ServerOptions::default()
            .max_connection_age(Some(Duration::from_millis(50)))
            .grace(Duration::from_millis(50)),
    )
    .await;
    let (client, ledger) = (serving.connect().await, ledger("age cut"));
    let failure = run_command(&client, "age cut", "hang").await.unwrap_err();
    assert_eq!(failure.code, Code::Unavailable);
    assert_eq!(ledger.abandoned(), 1);
}

#[tokio::test]
async fn a_stopping_server_finishes_calls_in_flight_and_closes_every_handler() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let (client, idle, ledger) = (serving.connect().await, serving.connect().await, ledger("stops"));
    assert!(run_command(&idle, "stops", "allow").await.is_ok());
    let mut config = probe("stops");
    config.seq = 1;
    assert_eq!(idle.create_session(session(any(&config))).await.status.unwrap().code, 0);
    let calls: Vec<_> = (0..10).map(|_| telling(&client, "stops", "wait")).collect();
    until("the calls are served", || ledger.entered() == 11).await;

    serving.begin_stop();
    idle.ended().await;
    assert!(TcpStream::connect(serving.grpc).await.is_err(), "no new connections");
    assert_eq!(serving.get("/readyz").await, (503, "waiting for: shutdown\n".to_owned()));
    assert_eq!(serving.get("/healthz").await.0, 200);
    assert!(calls.iter().all(|call| !call.is_finished()));
    ledger.open_gate();
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
    serving.stop().await;
    assert_eq!((ledger.opened(), ledger.closed(), ledger.leaked()), (2, 2, 0));
    assert_eq!(ledger.finished(), 11);
}

#[tokio::test]
async fn a_stopping_server_cuts_calls_off_after_the_grace_and_still_closes_their_handlers() {
    let serving = with_options(ServerOptions::default().grace(Duration::from_millis(100))).await;
    let (client, ledger) = (serving.connect().await, ledger("stops hard"));
    let call = telling(&client, "stops hard", "hang");
    until("the call is served", || ledger.entered() == 1).await;
    serving.stop().await;
    assert_eq!(call.await.unwrap().unwrap_err().code, Code::Unavailable);
    assert_eq!((ledger.abandoned(), ledger.closed(), ledger.leaked()), (1, 1, 0));
}

#[tokio::test]
async fn a_connection_whose_peer_answers_no_ping_is_ended() {
    let serving = with_options(
        ServerOptions::default()
            .keepalive(Some(Duration::from_millis(50)))
            .keepalive_timeout(Duration::from_millis(50)),
    )
    .await;
    // Clients that never answer a ping: silent ones, and those whose request headers never end, which no answer may interrupt.
    let headers = [HEADERS, CONTINUATION].concat();
    for sent in [b"", HEADERS, &headers] {
        assert!(is_ended(&serving, sent).await, "{sent:?}");
    }
    // A peer that answers stays connected.
    let client = serving.connect().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(run_command(&client, "keepalive", "allow").await.is_ok());
}

/// HEADERS and CONTINUATION of a POST (RFC 9113, sections 6.2 and 6.10) without END_HEADERS.
const HEADERS: &[u8] = b"\0\0\x01\x01\0\0\0\0\x01\x83";
const CONTINUATION: &[u8] = b"\0\0\0\x09\0\0\0\0\x01";

/// Sends the preface, empty settings and `sent`, and returns whether the connection ends.
async fn is_ended(serving: &Serving, sent: &[u8]) -> bool {
    let mut stream = TcpStream::connect(serving.grpc).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    stream.write_all(sent).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut Vec::new())).await.is_ok()
}

#[tokio::test]
async fn request_headers_in_many_pieces_end_their_connection() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    assert!(is_ended(&serving, &[HEADERS, &CONTINUATION.repeat(100)].concat()).await);
}

#[tokio::test]
async fn a_flood_of_settings_ends_its_connection() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    // SETTINGS (RFC 9113, section 6.5) with SETTINGS_INITIAL_WINDOW_SIZE.
    assert!(is_ended(&serving, &b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\x01".repeat(1_000)).await);
    assert_eq!(serving.metric("mixer_adapter_limits_hit_total{limit=\"http2-settings\"}").await, 1.0);
    assert!(run_command(&client, "settings", "allow").await.is_ok());
}

#[tokio::test]
async fn a_flood_of_answers_to_pings_ends_its_connection() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    // PING with ACK (RFC 9113, section 6.7), which answers no PING of the server.
    assert!(is_ended(&serving, &b"\0\0\x08\x06\x01\0\0\0\0unasked!".repeat(2_000)).await);
    assert_eq!(serving.metric("mixer_adapter_limits_hit_total{limit=\"http2-control-frames\"}").await, 1.0);
    assert!(run_command(&client, "pings", "allow").await.is_ok());
}

#[tokio::test]
async fn a_connection_without_http2_is_ended() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let mut stranger = TcpStream::connect(serving.grpc).await.unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut received = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(5), stranger.read_to_end(&mut received)).await;
    assert!(ended.is_ok());
    assert!(run_command(&serving.connect().await, "no http2", "allow").await.is_ok());
}

#[tokio::test]
async fn deadlines_run_while_the_request_is_still_being_sent() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let mut request = super::support::post(ListEntry::METHOD);
    request.headers_mut().insert("grpc-timeout", "50m".parse().unwrap());
    let failure = client.exchange_unfinished(request, b"\0\0\0\0\x0aabc").await;
    assert_eq!(failure.unwrap_err().code, Code::DeadlineExceeded);
    let request = entry(any(&probe("half sent")), "allow").encode_to_vec();
    assert!(client.send(ListEntry::METHOD, &request).await.is_ok());
}

#[tokio::test]
async fn a_half_sent_request_to_the_admin_port_does_not_delay_the_shutdown() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let mut stalled = TcpStream::connect(serving.admin).await.unwrap();
    stalled.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
    // Accepted after the stalled one, so that is being served.
    assert_eq!(serving.get("/healthz").await.0, 200);
    tokio::time::timeout(Duration::from_secs(5), serving.stop()).await.unwrap();
}

#[tokio::test]
async fn costly_calls_of_one_connection_run_on_several_threads() {
    let workers = Workers::start(2).unwrap();
    let serving = Serving::on(
        &workers,
        |adapters| adapters.add::<Probe>(),
        ServerOptions::default(),
        TableLimits::default(),
    )
    .await;
    let (client, ledger) = (serving.connect().await, ledger("spin"));
    let calls: Vec<_> = (0..40).map(|_| telling(&client, "spin", "spin")).collect();
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
    assert_eq!((ledger.finished(), ledger.busy_threads()), (40, 2));
}

#[tokio::test]
async fn large_calls_run_on_a_thread_of_their_own() {
    let workers = Workers::start(1).unwrap();
    let serving = Serving::on(
        &workers,
        |adapters| adapters.add::<Probe>(),
        ServerOptions::default(),
        TableLimits::default(),
    )
    .await;
    let (client, ledger) = (serving.connect().await, ledger("large"));
    let small = entry(any(&probe("large")), "spin").encode_to_vec();
    // An unknown field of 64 KiB.
    let large = [&small[..], b"\xfa\x01\x80\x80\x04", &[0; 64 << 10]].concat();
    for (message, threads) in [(&large, 1), (&large, 1), (&small, 2)] {
        assert!(client.send(ListEntry::METHOD, message).await.is_ok());
        assert_eq!(ledger.busy_threads(), threads);
    }
}

#[tokio::test]
async fn a_call_on_another_thread_ends_with_its_client() {
    let workers = Workers::start(2).unwrap();
    let serving = Serving::on(
        &workers,
        |adapters| adapters.add::<Probe>(),
        ServerOptions::default(),
        TableLimits::default(),
    )
    .await;
    let (client, ledger) = (serving.connect().await, ledger("spin and hang"));
    let calls: Vec<_> = (0..40)
        .map(|number| telling(&client, "spin and hang", if number % 2 == 0 { "spin" } else { "hang" }))
        .collect();
    until("all calls are served", || ledger.entered() == 40).await;
    client.break_off();
    until("the calls have ended", || ledger.abandoned() == 20).await;
    drop(calls);
}
