//! Opening that blocks, and limits on what calls and sessions keep.

use std::time::Duration;

use futures_util::future::join_all;
use mixer_adapter::{
    proto::CheckResult,
    template::{ListEntry, Template as _},
    tonic::Code,
};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::CreateSessionRequest;
use mixer_adapter_host::{
    handler::TableLimits,
    session::{SessionLimits, SessionOptions},
};
use test_adapters::{Probe, ledger, params::probe::Params};

use super::{
    requests::{entry, inferred, probe, session},
    support::{Client, ClientError, Serving, any, until},
};

async fn call(client: &Client, config: &Params) -> Result<CheckResult, ClientError> {
    client.call(ListEntry::METHOD, &entry(any(config), "allow")).await
}

async fn create(client: &Client, config: &Params) -> (i32, String) {
    let status = client.create_session(session(any(config))).await.status.unwrap();
    (status.code, status.message)
}

/// Everything runs on one thread here, so that whatever blocks it stops the test.
#[tokio::test]
async fn openings_and_validations_that_block_stop_nobody_else() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let (client, ledger) = (serving.connect().await, ledger("blocks in open"));
    let opens = |seq| Params { seq, open: "block".to_owned(), ..probe("blocks in open") };
    let validates = Params { fault: "block".to_owned(), ..probe("blocks in open") };
    let mut calls = Vec::new();
    for config in [opens(1), opens(2), validates] {
        // Each connection opens one at a time.
        let client = serving.connect().await;
        calls.push(tokio::spawn(async move { call(&client, &config).await }));
    }
    until("two handlers are being opened", || ledger.opened() == 2).await;
    assert!(call(&client, &probe("opens meanwhile")).await.is_ok());
    assert_eq!(create(&client, &probe("opens meanwhile")).await.0, 0);
    assert_eq!(serving.get("/healthz").await.0, 200);
    ledger.open_gate();
    for answer in join_all(calls).await {
        assert!(answer.unwrap().is_ok());
    }
}

#[tokio::test]
async fn an_opening_that_blocks_for_too_long_is_given_up() {
    let limits = TableLimits::default().open_timeout(Duration::from_millis(50));
    let serving = Serving::with(|adapters| adapters.add::<Probe>(), Default::default(), limits).await;
    let (client, ledger) = (serving.connect().await, ledger("blocks for too long"));
    let config = Params { open: "block".to_owned(), ..probe("blocks for too long") };
    assert_eq!(call(&client, &config).await.unwrap_err().code, Code::Unavailable);
    ledger.open_gate();
}

#[tokio::test]
async fn configurations_are_as_long_as_the_limit_at_most() {
    let limits = TableLimits::default().max_config_size(1_000);
    let serving = Serving::with(|adapters| adapters.add::<Probe>(), Default::default(), limits).await;
    let client = serving.connect().await;
    let config = |length: usize| Params { open: "x".repeat(length), ..probe("config size") };
    assert!(call(&client, &config(900)).await.is_ok());
    let failure = call(&client, &config(1_000)).await.unwrap_err();
    assert_eq!(failure.code, Code::ResourceExhausted);
    assert_eq!(failure.message, "the configuration has 1016 bytes; the limit is 1000 (max-config-size)");
    assert_eq!(create(&client, &config(1_000)).await, (Code::ResourceExhausted as i32, failure.message));
    let refused = serving.metric("mixer_adapter_limit_refusals_total{limit=\"max-config-size\"}").await;
    assert_eq!(refused, 2.0);
}

#[tokio::test]
async fn sessions_are_limited_in_number_and_memory() {
    let number = SessionLimits::default().sessions(2);
    // Three short configurations fit, or one of 4,000 bytes, which counts four times.
    let bytes = SessionLimits::default().bytes(20_000);
    for (limits, length, name) in [(number, 0, "max-sessions"), (bytes, 4_000, "memory-limit")] {
        let options = SessionOptions::default().limits(limits);
        let serving = Serving::with_sessions(|adapters| adapters.add::<Probe>(), options).await;
        let client = serving.connect().await;
        let config = |seq| Params { seq, open: "x".repeat(length), ..probe("session limits") };
        let made = async |seq| client.create_session(session(any(&config(seq)))).await;
        let mut ids = Vec::new();
        let refused = loop {
            let answer = made(ids.len() as i64).await;
            match answer.status.unwrap() {
                status if status.code == 0 => ids.push(answer.session_id),
                status => break status,
            }
        };
        assert_eq!(refused.code, Code::ResourceExhausted as i32);
        assert!(refused.message.ends_with(&format!("({name})")), "{}", refused.message);
        assert_eq!(ids.len(), if length == 0 { 2 } else { 1 });
        let series = format!("mixer_adapter_limit_refusals_total{{limit=\"{name}\"}}");
        assert_eq!(serving.metric(&series).await, 1.0);
        // Another claim on a session takes no room, and the end of one makes room.
        assert_eq!(create(&client, &config(0)).await.0, 0);
        for _ in 0..2 {
            assert_eq!(client.close_session(&ids[0]).await.status.unwrap().code, 0);
        }
        assert_eq!(create(&client, &config(9)).await.0, 0);
    }
}

#[tokio::test]
async fn connections_share_the_sessions() {
    let number = SessionLimits::default().sessions(4);
    // Four configurations of 1,000 bytes fit, each of which counts four times.
    let bytes = SessionLimits::default().bytes(20_500);
    for (limits, length) in [(number, 0), (bytes, 1_000)] {
        let options = SessionOptions::default().limits(limits);
        let serving = Serving::with_sessions(|adapters| adapters.add::<Probe>(), options).await;
        // All of one length.
        let config = |seq: i64| Params { seq: seq + 1, open: "x".repeat(length), ..probe("shared sessions") };
        let refused = Code::ResourceExhausted as i32;
        let evicted = async || serving.metric("mixer_adapter_session_ends_total{reason=\"evicted\"}").await;

        let greedy = serving.connect().await;
        for seq in 0..4 {
            assert_eq!(create(&greedy, &config(seq)).await.0, 0);
        }
        assert_eq!(create(&greedy, &config(4)).await.0, refused, "it holds the most");
        let honest = serving.connect().await;
        for seq in [10, 11] {
            assert_eq!(create(&honest, &config(seq)).await.0, 0, "others have fewer");
        }
        assert_eq!(create(&honest, &config(12)).await.0, refused, "both hold two");
        assert_eq!(evicted().await, 2.0);

        // What connections leave behind gives way, too.
        greedy.break_off();
        let other = serving.connect().await;
        until("the connection has ended", || {
            serving.host.sessions().list(9).iter().any(|left| left.abandoned > 0)
        })
        .await;
        assert_eq!(create(&other, &config(20)).await.0, 0);
        assert_eq!(evicted().await, 3.0);
        let left = serving.host.sessions().list(9);
        assert_eq!((left.len(), left.iter().filter(|left| left.abandoned > 0).count()), (4, 1));
    }
}

#[tokio::test]
async fn sessions_that_several_connections_claim_give_way_like_others() {
    let limits = SessionLimits::default().sessions(4);
    let options = SessionOptions::default().limits(limits);
    let serving = Serving::with_sessions(|adapters| adapters.add::<Probe>(), options).await;
    let config = |seq| Params { seq, ..probe("doubly claimed sessions") };
    let greedy = [serving.connect().await, serving.connect().await];
    for client in &greedy {
        for seq in 0..4 {
            assert_eq!(create(client, &config(seq)).await.0, 0);
        }
    }
    let honest = serving.connect().await;
    assert_eq!(create(&honest, &config(10)).await.0, 0);
    assert_eq!(serving.metric("mixer_adapter_session_ends_total{reason=\"evicted\"}").await, 1.0);
}

#[tokio::test]
async fn a_session_that_is_refused_ends_no_other() {
    // Three configurations of 1,000 bytes fit, each of which counts four times.
    let limits = SessionLimits::default().bytes(15_500);
    let options = SessionOptions::default().limits(limits);
    let serving = Serving::with_sessions(|adapters| adapters.add::<Probe>(), options).await;
    let config = |seq, length| Params { seq, open: "x".repeat(length), ..probe("refused sessions") };
    let (busiest, other, newcomer) =
        (serving.connect().await, serving.connect().await, serving.connect().await);
    for (client, seq) in [(&busiest, 1), (&busiest, 2), (&other, 3)] {
        assert_eq!(create(client, &config(seq, 1_000)).await.0, 0);
    }
    // The busiest one would have to lose both, and the newcomer would hold more than what is left of it after the first.
    assert_eq!(create(&newcomer, &config(4, 1_900)).await.0, Code::ResourceExhausted as i32);
    assert_eq!(serving.host.sessions().list(9).len(), 3);
    assert_eq!(serving.metric("mixer_adapter_session_ends_total{reason=\"evicted\"}").await, 0.0);
}

#[tokio::test]
async fn a_session_that_others_claim_is_not_lost_with_those_of_a_greedy_connection() {
    let limits = SessionLimits::default().sessions(3);
    let serving =
        Serving::with_sessions(|adapters| adapters.add::<Probe>(), SessionOptions::default().limits(limits))
            .await;
    let config = |seq| Params { seq, ..probe("claimed sessions") };
    let (greedy, honest, newcomer) =
        (serving.connect().await, serving.connect().await, serving.connect().await);
    let shared = honest.create_session(session(any(&config(0)))).await.session_id;
    for seq in [1, 2, 0] {
        assert_eq!(create(&greedy, &config(seq)).await.0, 0);
    }
    assert_eq!(create(&newcomer, &config(3)).await.0, 0);
    assert_eq!(honest.close_session(&shared).await.status.unwrap().code, 0, "it is still there");
}

#[tokio::test]
async fn claims_on_one_session_count_in_bytes() {
    // The session fits with a few claims.
    let limits = SessionLimits::default().bytes(1_500);
    let serving =
        Serving::with_sessions(|adapters| adapters.add::<Probe>(), SessionOptions::default().limits(limits))
            .await;
    let config = probe("claimed by many");
    let mut clients = Vec::new();
    let refused = loop {
        let client = serving.connect().await;
        let (code, message) = create(&client, &config).await;
        clients.push(client);
        if code != 0 {
            break message;
        }
        assert!(clients.len() < 50, "claims are not counted");
    };
    assert!(refused.ends_with("(memory-limit)"), "{refused}");
    let sessions = serving.host.sessions();
    assert_eq!(sessions.list(9)[0].claims as usize, clients.len() - 1, "the others are still there");
    // The claims of a connection that has ended take no room.
    clients.swap_remove(1).break_off();
    until("a claim is abandoned", || sessions.list(9)[0].abandoned > 0).await;
    assert_eq!(create(&serving.connect().await, &config).await.0, 0);
}

/// A session whose claims take much memory.
fn large(seq: i64) -> CreateSessionRequest {
    let config = Params { seq, ..probe("large sessions") };
    let names = (0..100).map(|number| format!("{number}.instance.ns"));
    let inferred_types = names.map(|name| inferred(&name, "listentry")).collect();
    CreateSessionRequest { adapter_config: any(&config), inferred_types }
}

/// Whatever part of the memory is left when the number is reached.
#[tokio::test]
async fn claims_that_give_way_to_memory_let_no_session_exceed_the_number() {
    for bytes in (85_000..100_000).step_by(500) {
        let limits = SessionLimits::default().sessions(6).bytes(bytes);
        let options = SessionOptions::default().limits(limits);
        let serving = Serving::with_sessions(|adapters| adapters.add::<Probe>(), options).await;
        // One connection with two small sessions, four with a large one each, which another connection claims, too.
        let (first, greedy, newcomer) =
            (serving.connect().await, serving.connect().await, serving.connect().await);
        let small = async |client: &Client, seq| create(client, &Params { seq, ..probe("small") }).await;
        for seq in 0..2 {
            small(&first, seq).await;
        }
        let mut owners = Vec::new();
        for seq in 0..4 {
            let owner = serving.connect().await;
            for client in [&owner, &greedy] {
                client.create_session(large(seq)).await;
            }
            owners.push(owner);
        }
        for seq in 10..14 {
            small(&newcomer, seq).await;
            assert!(serving.host.sessions().list(20).len() <= 6, "{bytes} bytes, session {seq}");
        }
    }
}

#[tokio::test]
async fn the_claims_of_the_connection_with_the_most_give_way() {
    // Five such sessions with two claims each, and little more.
    let limits = SessionLimits::default().bytes(115_000);
    let serving =
        Serving::with_sessions(|adapters| adapters.add::<Probe>(), SessionOptions::default().limits(limits))
            .await;
    let (greedy, newcomer) = (serving.connect().await, serving.connect().await);
    let mut owners = Vec::new();
    for seq in 0..5 {
        let owner = serving.connect().await;
        let session = owner.create_session(large(seq)).await.session_id;
        owners.push((owner, session));
        assert_eq!(greedy.create_session(large(seq)).await.status.unwrap().code, 0);
    }
    for seq in 10..20 {
        assert_eq!(create(&newcomer, &Params { seq, ..probe("large sessions") }).await.0, 0);
    }
    for (owner, session) in &owners {
        assert_eq!(owner.close_session(session).await.status.unwrap().code, 0, "its own is still there");
    }
    assert_eq!(serving.metric("mixer_adapter_session_ends_total{reason=\"evicted\"}").await, 0.0);
}
