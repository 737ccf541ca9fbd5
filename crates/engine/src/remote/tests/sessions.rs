//! Our client and our server: sessions from end to end.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::time::Instant;
use tonic::Code;

use super::{
    ask, close, open, port,
    probe::{Running, reason},
    soon, until,
};
use crate::remote::{
    OpenError,
    session::{SessionState, SetupStep},
};
use mixer_adapter::service::ServerOptions;
use mixer_adapter_host::handler::Caller;

#[tokio::test]
async fn a_sessions_calls_run_with_its_configuration_until_it_is_dropped() {
    let adapter = Running::start().await;
    let (session, closing) = open(adapter.address, "not today").await.unwrap();
    assert_eq!(adapter.claims(), 1);
    let SessionState::Open { id } = session.state() else { panic!("{:?}", session.state()) };
    assert!(id.starts_with(&adapter.host.sessions().list(1)[0].id), "the first digits");
    assert_eq!(reason(ask(&session).await.unwrap()), "not today");
    close(session, closing).await;
    assert_eq!((adapter.claims(), adapter.host.handlers().live_count()), (0, 0));
}

#[tokio::test]
async fn a_refused_configuration_opens_no_session_and_says_why() {
    let adapter = Running::start().await;
    for (config, step, code, text) in [
        ("invalid", SetupStep::Validate, Code::InvalidArgument, "value: must not be invalid"),
        ("cannot open", SetupStep::CreateSession, Code::FailedPrecondition, "no room"),
    ] {
        let Err(OpenError::Refused(refused)) = open(adapter.address, config).await else {
            panic!("{config}")
        };
        assert_eq!((refused.step, refused.status.code), (step, code as i32));
        assert!(refused.status.message.contains(text), "{refused}");
        assert!(refused.to_string().contains(&format!("{step:?} returned {code:?}: ")), "{refused}");
        // The fields that were refused, for programs.
        assert_eq!(refused.status.details.len(), usize::from(step == SetupStep::Validate));
    }
    // Only the second came to CreateSession.
    assert_eq!(adapter.host.counts().refused.load(Relaxed), 1);
    assert_eq!(adapter.claims(), 0);
}

#[tokio::test]
async fn a_session_with_an_adapter_that_is_not_there_is_pending_until_it_is() {
    let port = port();
    let address = port.address;
    let (session, closing) = open(address, "late").await.unwrap();
    for _ in 0..3 {
        let before = Instant::now();
        assert_eq!(ask(&session).await.unwrap_err().code(), Code::Unavailable);
        assert!(before.elapsed() < Duration::from_millis(100));
    }
    let SessionState::Pending { status } = session.state() else { panic!("{:?}", session.state()) };
    assert!(status.message().contains(&address.to_string()), "{status:?}");
    let adapter = Running::on(port, ServerOptions::default()).await;
    soon(session.opened()).await;
    assert_eq!(reason(ask(&session).await.unwrap()), "late");
    assert_eq!(adapter.claims(), 1);
    close(session, closing).await;
    assert_eq!(adapter.claims(), 0);
}

#[tokio::test]
async fn a_session_that_the_adapter_lost_is_made_again_and_the_call_succeeds() {
    let adapter = Running::start().await;
    let (session, closing) = open(adapter.address, "again").await.unwrap();
    ask(&session).await.unwrap();
    let adapter = adapter.restart().await;
    assert_eq!(adapter.claims(), 0);
    // The connection may be found broken by the first call.
    until(async || ask(&session).await.is_ok_and(|answer| reason(answer) == "again")).await;
    assert_eq!(adapter.claims(), 1);
    close(session, closing).await;
    assert_eq!(adapter.claims(), 0);
}

#[tokio::test]
async fn many_calls_that_find_a_session_lost_make_it_again_once_and_all_succeed() {
    let adapter = Running::start().await;
    let (session, closing) = open(adapter.address, "again").await.unwrap();
    adapter.host.sessions().clear();
    let answers = futures_util::future::join_all((0..100).map(|_| ask(&session))).await;
    assert!(answers.into_iter().all(|answer| reason(answer.unwrap()) == "again"));
    assert_eq!(adapter.claims(), 1);
    close(session, closing).await;
    assert_eq!(adapter.claims(), 0);
}

/// NOT_FOUND may be the adapter's own answer: the claims on the session must not add up.
#[tokio::test]
async fn an_adapter_that_does_not_find_something_else_keeps_its_session() {
    let adapter = Running::start().await;
    let (session, closing) = open(adapter.address, "not found").await.unwrap();
    let before = Instant::now();
    for _ in 0..20 {
        let error = ask(&session).await.unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::NotFound, "adapter `probe`: no such row"));
    }
    // Rests of at least 4, 6, 9, 13 and then 16 ms lie between the attempts to make it again.
    let rests = 5 + before.elapsed().as_millis() as u64 / 16;
    assert!(adapter.host.counts().opened.load(Relaxed) <= 2 + rests);
    until(async || adapter.claims() == 1).await;
    close(session, closing).await;
    assert_eq!(adapter.claims(), 0);
}

#[tokio::test]
async fn a_new_session_is_opened_before_the_old_one_is_closed() {
    let adapter = Running::start().await;
    let (old, closing) = open(adapter.address, "old").await.unwrap();
    let (new, _) = open(adapter.address, "new").await.unwrap();
    assert_eq!(reason(ask(&old).await.unwrap()), "old");
    assert_eq!(reason(ask(&new).await.unwrap()), "new");
    close(old, closing).await;
    assert_eq!(reason(ask(&new).await.unwrap()), "new");
    assert_eq!(adapter.claims(), 1);
}

#[tokio::test]
async fn equal_sessions_share_one_and_give_back_their_own_claim() {
    let adapter = Running::start().await;
    let (first, closing) = open(adapter.address, "same").await.unwrap();
    let (second, _) = open(adapter.address, "same").await.unwrap();
    assert_eq!((adapter.host.sessions().list(10).len(), adapter.claims()), (1, 2));
    close(first, closing).await;
    assert_eq!(adapter.claims(), 1);
    assert_eq!(reason(ask(&second).await.unwrap()), "same");
}

#[tokio::test]
async fn closing_a_session_whose_adapter_has_gone_takes_no_time() {
    let adapter = Running::start().await;
    let (session, closing) = open(adapter.address, "gone").await.unwrap();
    let _port = adapter.stop().await;
    let before = Instant::now();
    close(session, closing).await;
    assert!(before.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_deadline_holds_for_a_sessions_calls() {
    let adapter = Running::start().await;
    let (session, _) = open(adapter.address, "slow").await.unwrap();
    let deadline = Some(Instant::now() + Duration::from_millis(30));
    let caller = Caller { deadline, ..Caller::default() };
    let answer = session.call(&super::check(), super::ADAPTER_CONFIG, super::request(None), &caller).await;
    assert_eq!(answer.unwrap_err().code(), Code::DeadlineExceeded);
}
