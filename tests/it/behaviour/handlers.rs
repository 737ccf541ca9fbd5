//! Opening, sharing, caching and closing of handlers.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use mixer_adapter::{
    prost::Message as _,
    proto::{Any, CheckResult},
    service::ServerOptions,
    template::{CheckNothing, ListEntry, Template as _},
    tonic::Code,
};
use mixer_adapter_host::handler::TableLimits;
use test_adapters::{Bystander, Probe, ledger, params::probe::Params};

use super::{
    requests::{bystander, entry, nothing, probe, run_command, session, telling},
    support::{Client, ClientError, Serving, any, until},
};

async fn with_limits(limits: TableLimits) -> Serving {
    Serving::with(|adapters| adapters.add::<Probe>(), ServerOptions::default(), limits).await
}

async fn call(client: &Client, config: &Params) -> Result<CheckResult, ClientError> {
    client.call(ListEntry::METHOD, &entry(any(config), "allow")).await
}

#[tokio::test]
async fn ten_thousand_configurations_are_bounded_by_the_cache_and_closed_once_each() {
    let limits = TableLimits::default().cached_handlers(100);
    let serving = with_limits(limits).await;
    let (client, ledger) = (serving.connect().await, ledger("10,000"));
    for batch in 0..100 {
        let configs = (0..100).map(|n| Params { seq: batch * 100 + n, ..probe("10,000") });
        let calls = configs.map(async |config| call(&client, &config).await);
        for answer in join_all(calls).await {
            assert!(answer.is_ok(), "{answer:?}");
        }
        // Beyond the bound are only those whose calls or closing have just ended.
        let open = ledger.opened() - ledger.closed();
        assert!(open <= 250, "{open} handlers are open");
    }
    assert_eq!(ledger.opened(), 10_000);
    assert_eq!(serving.metric("mixer_adapter_cached_handlers").await, 100.0);
    assert_eq!(serving.metric("mixer_adapter_open_handlers").await, 100.0);
    until("evicted handlers are closed", || ledger.closed() == 9_900).await;
    serving.stop().await;
    assert_eq!((ledger.closed(), ledger.leaked()), (10_000, 0));
}

#[tokio::test]
async fn a_handler_that_was_called_repeatedly_is_not_evicted_for_others_called_once() {
    let serving = with_limits(TableLimits::default().cached_handlers(100)).await;
    let (client, ledger) = (serving.connect().await, ledger("called repeatedly"));
    let established = probe("called repeatedly");
    for _ in 0..4 {
        assert!(call(&client, &established).await.is_ok());
    }
    let newcomer = Params { seq: 1, ..established.clone() };
    assert!(call(&client, &newcomer).await.is_ok());
    for seq in 0..1_000 {
        assert!(call(&client, &Params { seq, ..probe("foreign") }).await.is_ok());
    }
    until("the newcomer is evicted", || ledger.closed() == 1).await;
    assert!(call(&client, &established).await.is_ok());
    assert_eq!(ledger.opened(), 2, "the other one is still open");
    assert_eq!(serving.metric("mixer_adapter_handlers_evicted_total{adapter=\"probe\"}").await, 902.0);
}

#[tokio::test]
async fn configurations_of_one_adapter_leave_the_others_their_share_of_the_cache() {
    let limits = TableLimits::default().cached_handlers(100);
    let serving = Serving::with(
        |adapters| adapters.add::<Probe>().add::<Bystander>(),
        ServerOptions::default(),
        limits,
    )
    .await;
    let (client, ledger) = (serving.connect().await, ledger("its share"));
    for seq in 0..50 {
        assert!(call(&client, &Params { seq, ..probe("its share") }).await.is_ok());
    }
    for number in 0..1_000 {
        let request = nothing(any(&bystander(&format!("foreign bystander {number}"))));
        let answer: Result<CheckResult, _> = client.call(CheckNothing::METHOD, &request).await;
        assert!(answer.is_ok(), "{answer:?}");
    }
    assert_eq!((ledger.opened(), ledger.closed()), (50, 0));
}

#[tokio::test]
async fn long_configurations_fill_the_cache_sooner() {
    let serving = with_limits(TableLimits::default().cached_bytes(100_000)).await;
    let (client, ledger) = (serving.connect().await, ledger("long"));
    // A handler counts with four bytes for each byte of its configuration, and the key with one.
    let long = "x".repeat(9_000);
    for seq in 0..10 {
        assert!(call(&client, &Params { seq, open: long.clone(), ..probe("long") }).await.is_ok());
    }
    assert_eq!(serving.metric("mixer_adapter_cached_handlers").await, 2.0);
    until("the others are closed", || ledger.closed() == 8).await;
}

#[tokio::test]
async fn a_hundred_first_calls_open_their_handler_once() {
    let serving = with_limits(TableLimits::default()).await;
    let (client, ledger) = (serving.connect().await, ledger("first calls"));
    let config = Params { open: "wait".to_owned(), ..probe("first calls") };
    let calls = join_all((0..100).map(|_| call(&client, &config)));
    let gate = async {
        until("the handler is being opened", || ledger.opened() == 1).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        ledger.open_gate();
    };
    let (answers, ()) = tokio::join!(calls, gate);
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!((ledger.opened(), ledger.entered()), (1, 100));
    serving.stop().await;
    assert_eq!(ledger.closed(), 1);
}

#[tokio::test]
async fn a_failed_opening_is_remembered_briefly_and_reported_each_time() {
    let limits = TableLimits::default().remember_refusals(Duration::from_millis(500));
    let serving = with_limits(limits).await;
    let (client, ledger) = (serving.connect().await, ledger("fails to open"));
    let config = Params { open: "fail".to_owned(), ..probe("fails to open") };
    let expected = ClientError {
        code: Code::Unavailable,
        message: "adapter `probe` refuses its configuration: the back end is not available".to_owned(),
    };
    for answer in join_all((0..20).map(|_| call(&client, &config))).await {
        assert_eq!(answer.unwrap_err(), expected);
    }
    assert_eq!(call(&client, &config).await.unwrap_err(), expected);
    let status = client.create_session(session(any(&config))).await.status.unwrap();
    assert_eq!((status.code, status.message), (expected.code as i32, expected.message.clone()));
    assert_eq!(ledger.opened(), 1);

    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(call(&client, &config).await.unwrap_err(), expected);
    assert_eq!(ledger.opened(), 2, "it is tried again");
    assert_eq!(serving.metric("mixer_adapter_open_handlers").await, 0.0);
}

#[tokio::test]
async fn a_panic_while_opening_is_a_refusal() {
    let serving = with_limits(TableLimits::default()).await;
    let client = serving.connect().await;
    let config = Params { open: "panic".to_owned(), ..probe("panics in open") };
    let failure = call(&client, &config).await.unwrap_err();
    assert_eq!(failure.code, Code::Internal);
    assert_eq!(
        failure.message,
        "adapter `probe` refuses its configuration: it panicked: panic in open on request"
    );
    assert_eq!(serving.metric("mixer_adapter_panics_total{adapter=\"probe\"}").await, 1.0);
    assert!(call(&client, &probe("panics in open")).await.is_ok(), "other configurations are none the worse");
}

#[tokio::test]
async fn a_panic_while_validating_is_a_refusal() {
    let serving = with_limits(TableLimits::default()).await;
    let client = serving.connect().await;
    let config = Params { fault: "panic".to_owned(), ..probe("panics in validate") };
    let expected = "adapter `probe` refuses its configuration: it panicked: panic in validate on request";
    let failure = call(&client, &config).await.unwrap_err();
    assert_eq!(failure, ClientError { code: Code::Internal, message: expected.to_owned() });
    let status = client.create_session(session(any(&config))).await.status.unwrap();
    assert_eq!((status.code, &*status.message), (Code::Internal as i32, expected));
    assert_eq!(serving.metric("mixer_adapter_panics_total{adapter=\"probe\"}").await, 2.0);
}

#[tokio::test]
async fn opening_goes_on_when_the_first_caller_stops_waiting() {
    let serving = with_limits(TableLimits::default()).await;
    let (client, ledger) = (serving.connect().await, ledger("slow to open"));
    let config = Params { open: "wait".to_owned(), ..probe("slow to open") };
    let request = entry(any(&config), "allow").encode_to_vec();
    for _ in 0..3 {
        let failure =
            client.send_within(ListEntry::METHOD, &request, Duration::from_millis(30)).await.unwrap_err();
        assert_eq!(failure.code, Code::DeadlineExceeded);
    }
    ledger.open_gate();
    assert!(call(&client, &config).await.is_ok());
    assert_eq!((ledger.opened(), ledger.leaked()), (1, 0));
    serving.stop().await;
    assert_eq!(ledger.closed(), 1);
}

#[tokio::test]
async fn an_opening_that_never_ends_is_given_up() {
    let limits = TableLimits::default().open_timeout(Duration::from_millis(50));
    let serving = with_limits(limits).await;
    let client = serving.connect().await;
    let config = Params { open: "wait".to_owned(), ..probe("never opens") };
    let failure = call(&client, &config).await.unwrap_err();
    assert_eq!(failure.code, Code::Unavailable);
    assert_eq!(failure.message, "adapter `probe` refuses its configuration: it was not open after 50ms");
}

#[tokio::test]
async fn a_handler_that_is_not_cached_closes_after_its_last_call() {
    let serving = with_limits(TableLimits::default().cached_handlers(0)).await;
    let (client, ledger) = (serving.connect().await, ledger("not kept"));
    let first = telling(&client, "not kept", "wait");
    until("the first call is in the handler", || ledger.entered() == 1).await;
    let second = telling(&client, "not kept", "wait");
    until("the second call is in the handler", || ledger.entered() == 2).await;
    assert_eq!((ledger.opened(), ledger.closed()), (1, 0), "equal configurations share a handler");
    ledger.open_gate();
    assert!(first.await.unwrap().is_ok() && second.await.unwrap().is_ok());
    until("it is closed", || ledger.closed() == 1).await;
    assert!(run_command(&client, "not kept", "allow").await.is_ok());
    until("the next one is closed too", || (ledger.opened(), ledger.closed()) == (2, 2)).await;
}

#[tokio::test]
async fn idle_handlers_are_evicted() {
    let serving = with_limits(TableLimits::default().idle(Some(Duration::from_millis(100)))).await;
    let (client, ledger) = (serving.connect().await, ledger("idle handler"));
    assert!(run_command(&client, "idle handler", "allow").await.is_ok());
    assert_eq!(ledger.closed(), 0);
    let host = serving.host.clone();
    until("the idle handler is closed", || {
        host.expire_idle();
        ledger.closed() == 1
    })
    .await;
}

#[tokio::test]
async fn a_handler_is_evicted_soon_when_another_configuration_replaced_its_own() {
    let limits = TableLimits::default().idle(None).superseded(Duration::from_millis(100));
    let serving = with_limits(limits).await;
    let (client, former, current) = (serving.connect().await, ledger("former"), ledger("current"));
    assert!(run_command(&client, "former", "allow").await.is_ok());
    // Last calls are known to the millisecond.
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert!(run_command(&client, "current", "allow").await.is_ok());
    let host = serving.host.clone();
    until("the former handler is closed", || {
        host.expire_idle();
        former.closed() == 1
    })
    .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    host.expire_idle();
    assert_eq!(current.closed(), 0, "no other one was opened since its last call");
}

#[tokio::test]
async fn equal_configurations_share_a_handler_however_they_are_written() {
    let serving = with_limits(TableLimits::default()).await;
    let (client, ledger) = (serving.connect().await, ledger("equal"));
    // Field 2 (seq) is 7, field 1 (ledger) is "equal": in order, in reverse with a padded length, and with a field that
    // is not known.
    for value in
        [&b"\x0a\x05equal\x10\x07"[..], b"\x10\x07\x0a\x85\x00equal", b"\x0a\x05equal\x10\x07\x98\x06\x01"]
    {
        let config = Any {
            type_url: "type.googleapis.com/test.probe.Params".to_owned(),
            value: Bytes::copy_from_slice(value),
        };
        let answer: Result<CheckResult, _> =
            client.call(ListEntry::METHOD, &entry(Some(config.clone()), "allow")).await;
        assert!(answer.is_ok(), "{value:?}");
        assert_eq!(client.create_session(session(Some(config))).await.status.unwrap().code, 0);
    }
    assert_eq!(ledger.opened(), 1);
    serving.stop().await;
    assert_eq!(ledger.closed(), 1);
}

#[tokio::test]
async fn a_call_without_configuration_runs_with_the_only_adapter_that_needs_none() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>().add::<Bystander>()).await;
    let client = serving.connect().await;
    let opened = ledger("").opened();
    for _ in 0..3 {
        assert!(client.call::<CheckResult>(CheckNothing::METHOD, &nothing(None)).await.is_ok());
    }
    assert_eq!(ledger("").opened() - opened, 1);

    let failure = client.call::<CheckResult>(ListEntry::METHOD, &entry(None, "allow")).await.unwrap_err();
    assert_eq!(failure.code, Code::FailedPrecondition);
    assert_eq!(
        failure.message,
        "no configuration for template `listentry`: the request has no adapter_config (no session id, no configuration), \
         no session created on this connection names `entry.instance.istio-system`, and the only adapter that serves the template, `probe`, needs \
         one (adapter `probe` refuses its configuration: ledger: must be given); open a session or send adapter_config"
    );
}
