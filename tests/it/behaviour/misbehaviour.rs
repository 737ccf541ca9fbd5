//! Handlers that fail, panic, hang or block, and clients that go away.

use std::time::Duration;

use mixer_adapter::{
    prost::Message as _,
    proto::{Any, CheckResult, QuotaResult, ReportResult},
    service::{ServerOptions, Workers},
    template::{ListEntry, Metric, Quota, Template as _},
    tonic::{Code, Status},
};
use mixer_adapter_host::handler::{TableLimits, details_of};
use test_adapters::{Blocker, Probe, ledger};

use super::{
    requests::{blocker, entry, metrics, probe, quota, run_command, session, telling},
    support::{ClientError, Serving, any, framed, post, until},
};

/// The series of calls to the probe that ended with that code.
fn calls(template: &str, code: &str) -> String {
    format!("mixer_adapter_calls_total{{adapter=\"probe\",template=\"{template}\",code=\"{code}\"}}")
}

#[tokio::test]
async fn a_panic_is_an_internal_error_of_its_call_only() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let (client, ledger) = (serving.connect().await, ledger("panics"));
    let waiting = telling(&client, "panics", "wait");
    until("the call waits", || ledger.entered() == 1).await;

    let failure = run_command(&client, "panics", "panic").await.unwrap_err();
    assert_eq!(failure.code, Code::Internal);
    assert_eq!(failure.message, "adapter `probe` panicked: panic on request");
    // The call beside it and later ones of the same handler are none the worse.
    ledger.open_gate();
    assert!(waiting.await.unwrap().is_ok());
    assert!(run_command(&client, "panics", "allow").await.is_ok());
    assert_eq!(ledger.opened(), 1);
    assert_eq!(serving.metric("mixer_adapter_panics_total{adapter=\"probe\"}").await, 1.0);
    assert_eq!(serving.metric(&calls("listentry", "INTERNAL")).await, 1.0);
    assert_eq!(serving.metric(&calls("listentry", "OK")).await, 2.0);
    serving.stop().await;
    assert_eq!((ledger.closed(), ledger.leaked()), (1, 0));
}

#[tokio::test]
async fn a_panic_before_the_future_is_one_of_its_call_only() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let failure = run_command(&client, "early panics", "panic early").await.unwrap_err();
    assert_eq!(failure.code, Code::Internal);
    assert!(failure.message.starts_with("adapter `probe` panicked: "), "{failure:?}");
    assert!(failure.message.contains("panic before the future"), "{failure:?}");
    assert!(run_command(&client, "early panics", "allow").await.is_ok());
    assert_eq!(serving.metric("mixer_adapter_panics_total{adapter=\"probe\"}").await, 1.0);
}

#[tokio::test]
async fn an_error_keeps_its_code_and_reason() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let failure = run_command(&client, "fails", "fail").await.unwrap_err();
    assert_eq!(failure.code, Code::Unavailable);
    assert_eq!(failure.message, "adapter `probe`: failed on request");
    // One bad instance fails the report it is in.
    let report = metrics(any(&probe("fails")), &["allow", "fail", "allow"]);
    assert_eq!(client.call::<ReportResult>(Metric::METHOD, &report).await.unwrap_err(), failure);
    assert_eq!(ledger("fails").entered(), 3);
    assert_eq!(serving.metric(&calls("listentry", "UNAVAILABLE")).await, 1.0);
    assert_eq!(serving.metric(&calls("metric", "UNAVAILABLE")).await, 1.0);
}

/// In a header of gRPC, which has a bound: the other detail is too large.
#[tokio::test]
async fn details_of_an_error_are_sent_and_large_ones_counted() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let request = entry(any(&probe("details")), "fail with details").encode_to_vec();
    let (head, _, trailers) = client.raw(post(ListEntry::METHOD), framed(&request)).await.unwrap();
    let headers = trailers.as_ref().unwrap_or(head.headers());
    let details = details_of(&Status::from_header_map(headers).unwrap());
    let names: Vec<_> = details.iter().map(Any::message_name).collect();
    assert_eq!(names, ["google.rpc.RetryInfo"]);
    let omitted = "mixer_adapter_events_total{adapter=\"probe\",event=\"details_omitted\"}";
    assert!(serving.metric(omitted).await >= 1.0, "the counter is the process's");
}

#[tokio::test]
async fn a_denial_is_no_error() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let status = run_command(&client, "denies", "deny").await.unwrap().status.unwrap();
    assert_eq!((status.code, &*status.message), (Code::PermissionDenied as i32, "denied on request"));
    assert_eq!(serving.metric(&calls("listentry", "OK")).await, 1.0);
}

#[tokio::test]
async fn a_call_that_never_returns_ends_at_its_deadline() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let (client, ledger) = (serving.connect().await, ledger("deadline"));
    // The handler is open before.
    assert!(run_command(&client, "deadline", "allow").await.is_ok());
    let request = entry(any(&probe("deadline")), "hang").encode_to_vec();
    let failure =
        client.send_within(ListEntry::METHOD, &request, Duration::from_millis(500)).await.unwrap_err();
    assert_eq!(failure.code, Code::DeadlineExceeded);
    assert_eq!(failure.message, "the deadline passed before `listentry` answered");
    assert_eq!((ledger.entered(), ledger.abandoned()), (2, 1), "the handler's future is dropped");
    assert_eq!(serving.metric(&calls("listentry", "DEADLINE_EXCEEDED")).await, 1.0);
    assert!(run_command(&client, "deadline", "allow").await.is_ok());
    serving.stop().await;
    assert_eq!((ledger.opened(), ledger.closed()), (1, 1));
}

#[tokio::test]
async fn the_server_ends_calls_whose_callers_would_wait_for_ever() {
    let options = ServerOptions::default().call_timeout(Some(Duration::from_millis(50)));
    let serving = Serving::with(|adapters| adapters.add::<Probe>(), options, TableLimits::default()).await;
    let client = serving.connect().await;
    assert_eq!(run_command(&client, "no deadline", "hang").await.unwrap_err().code, Code::DeadlineExceeded);
    let request = entry(any(&probe("no deadline")), "hang").encode_to_vec();
    let patient = client.send_within(ListEntry::METHOD, &request, Duration::from_secs(60)).await;
    assert_eq!(patient.unwrap_err().code, Code::DeadlineExceeded);
    assert_eq!(ledger("no deadline").abandoned(), 2);
}

#[tokio::test]
async fn a_malformed_deadline_is_refused() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let mut request = post(ListEntry::METHOD);
    request.headers_mut().insert("grpc-timeout", "soon".parse().unwrap());
    assert_eq!(client.exchange(request, Default::default()).await.unwrap_err().code, Code::InvalidArgument);
}

#[tokio::test]
async fn a_call_whose_client_goes_away_is_dropped() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let (client, ledger) = (serving.connect().await, ledger("client gone"));
    let call = telling(&client, "client gone", "hang");
    until("the call is in the handler", || ledger.entered() == 1).await;
    call.abort();
    until("a cancelled call is dropped", || ledger.abandoned() == 1).await;

    let broken = serving.connect().await;
    let call = telling(&broken, "client gone", "hang");
    until("the call is in the handler", || ledger.entered() == 2).await;
    broken.break_off();
    until("the call of a broken connection is dropped", || ledger.abandoned() == 2).await;
    assert_eq!(call.await.unwrap().unwrap_err().code, Code::Unavailable);

    assert!(run_command(&client, "client gone", "allow").await.is_ok());
    assert_eq!(serving.metric(&calls("listentry", "CANCELLED")).await, 2.0);
    serving.stop().await;
    assert_eq!((ledger.opened(), ledger.closed()), (1, 1));
}

#[tokio::test]
async fn a_grant_that_breaks_the_contract_is_an_internal_error() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let granting = |grant| {
        let mut config = probe("grants");
        config.grant = grant;
        any(&config)
    };
    let granted = async |grant, best_effort| {
        let answer: Result<QuotaResult, ClientError> =
            client.call(Quota::METHOD, &quota(granting(grant), 3, best_effort)).await;
        answer.map(|answer| answer.quotas["quota.instance.istio-system"].granted_amount)
    };
    assert_eq!(granted(2, true).await, Ok(2));
    assert_eq!(granted(0, false).await, Ok(0));
    assert_eq!(granted(3, false).await, Ok(3));
    let partial = granted(2, false).await.unwrap_err();
    assert_eq!(partial.code, Code::Internal);
    assert_eq!(
        partial.message,
        "adapter `probe` granted 2 of 3 although the request is not best effort: grant all or nothing"
    );
    assert_eq!(granted(-1, true).await.unwrap_err().message, "adapter `probe` granted -1, a negative amount");
    assert_eq!(serving.metric(&calls("quota", "INTERNAL")).await, 2.0);
}

#[tokio::test]
async fn a_handler_that_blocks_its_thread_stalls_nobody_else() {
    let workers = Workers::start(1).unwrap();
    let serving = Serving::on(
        &workers,
        |adapters| adapters.add::<Blocker>().add::<Probe>(),
        ServerOptions::default(),
        TableLimits::default(),
    )
    .await;
    let (client, ledger) = (serving.connect().await, ledger("blocks"));
    let request = entry(any(&blocker("blocks")), "");
    let blocked: Vec<_> = (0..8)
        .map(|_| {
            let (client, request) = (client.clone(), request.clone());
            tokio::spawn(async move { client.call::<CheckResult>(ListEntry::METHOD, &request).await })
        })
        .collect();
    until("all of them block", || ledger.entered() == 8).await;

    assert_eq!(serving.get("/healthz").await, (200, "ok\n".to_owned()));
    // On the same connection, so on the same thread.
    assert!(run_command(&client, "blocks beside", "allow").await.is_ok());
    let bytes = request.encode_to_vec();
    let late = client.send_within(ListEntry::METHOD, &bytes, Duration::from_millis(20)).await;
    assert_eq!(late.unwrap_err().code, Code::DeadlineExceeded);
    assert!(blocked.iter().all(|call| !call.is_finished()));

    ledger.open_gate();
    for call in blocked {
        assert!(call.await.unwrap().is_ok());
    }
    serving.stop().await;
    until("the handler is closed", || ledger.closed() == 1).await;
}

#[tokio::test]
async fn block_in_place_works_in_an_adapter_that_declares_that_it_blocks_and_the_error_of_others_says_so() {
    let serving = Serving::start(|adapters| adapters.add::<Blocker>().add::<Probe>()).await;
    let client = serving.connect().await;
    ledger("blocks in place").open_gate();
    let request = entry(any(&blocker("blocks in place")), "block in place");
    client.call::<CheckResult>(ListEntry::METHOD, &request).await.unwrap();
    let failure = run_command(&client, "cannot block in place", "block in place").await.unwrap_err();
    assert_eq!(failure.code, Code::Internal);
    let repair = "; an adapter that blocks declares `const BLOCKING: bool = true`";
    assert!(failure.message.ends_with(repair), "{failure:?}");
}

#[tokio::test]
async fn blocking_calls_that_nobody_waits_for_give_their_threads_back() {
    let serving = Serving::start(|adapters| adapters.add::<Blocker>()).await;
    let (client, ledger) = (serving.connect().await, ledger("threads"));
    ledger.open_gate();
    // More of them than the adapter has threads.
    let hang = entry(any(&blocker("threads")), "hang").encode_to_vec();
    let hanging = (0..100).map(|_| client.send_within(ListEntry::METHOD, &hang, Duration::from_millis(200)));
    for answer in futures_util::future::join_all(hanging).await {
        assert_eq!(answer.unwrap_err().code, Code::DeadlineExceeded);
    }
    let answer: Result<CheckResult, _> =
        client.call(ListEntry::METHOD, &entry(any(&blocker("threads")), "")).await;
    assert!(answer.is_ok());
    serving.stop().await;
    assert_eq!((ledger.closed(), ledger.leaked()), (1, 0));
}

#[tokio::test]
async fn a_handler_that_blocks_while_it_closes_stalls_nobody() {
    let serving = Serving::start(|adapters| adapters.add::<Blocker>()).await;
    let (client, ledger) = (serving.connect().await, ledger("blocks closing"));
    let mut config = blocker("blocks closing");
    config.block_close = true;
    let id = client.create_session(session(any(&config))).await.session_id;
    assert_eq!(client.close_session(&id).await.status.unwrap().code, 0);
    assert_eq!(serving.get("/healthz").await.0, 200);
    assert_eq!(ledger.closed(), 0);
    ledger.open_gate();
    serving.stop().await;
    assert_eq!(ledger.closed(), 1);
}
