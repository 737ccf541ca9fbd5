//! Faults between the engine and an adapter. The clock is paused: nobody waits.

use std::time::Duration;

use mixer_adapter::{Code, testing::InjectedFault};
use mixer_adapter_engine::{build::BuildOptions, dispatch::FailurePolicy};
use test_adapters::ledger;

use super::{obedient, order};

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_the_deadline_is_an_error_and_a_shorter_one_none() {
    let mixer = obedient("delayed").start().await.unwrap();
    mixer.inject(InjectedFault::Delay(Duration::from_secs(60)));
    let late = mixer.check(order("allow")).within(Duration::from_secs(30)).await;
    late.expect_error(Code::Internal, "DEADLINE_EXCEEDED");
    mixer.inject(InjectedFault::Delay(Duration::from_secs(20)));
    mixer.check(order("allow")).within(Duration::from_secs(30)).await.expect_allowed();
}

#[tokio::test(start_paused = true)]
async fn an_error_takes_the_place_of_the_adapter() {
    let mixer = obedient("erring").start().await.unwrap();
    mixer.inject(InjectedFault::Error(Code::Unavailable, "down for repair".to_owned()));
    mixer.check(order("allow")).await.expect_error(Code::Internal, "UNAVAILABLE: down for repair");
    mixer.check(order("allow")).await.expect_allowed();
    assert_eq!(ledger("erring").entered(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_connection_fails_the_call_and_the_next_one_has_another() {
    let mixer = obedient("dropped").start().await.unwrap();
    mixer.check(order("allow")).await.expect_allowed();
    mixer.inject(InjectedFault::Dropped);
    mixer
        .check(order("allow"))
        .await
        .expect_error(Code::Internal, "UNAVAILABLE: the connection to the adapter was broken off");
    mixer.check(order("allow")).await.expect_allowed();
    assert_eq!(ledger("dropped").entered(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_decoded_is_an_error() {
    let mixer = obedient("malformed").start().await.unwrap();
    mixer.inject(InjectedFault::Malformed);
    mixer.check(order("allow")).await.expect_error(Code::Internal, "the answer cannot be decoded");
    // google.rpc.Status with code 7, as the status of a CheckResult.
    mixer.inject(InjectedFault::Answer(vec![0x0a, 2, 8, 7].into()));
    mixer.check(order("allow")).await.expect_denied(Code::PermissionDenied, "");
    assert_eq!(ledger("malformed").entered(), 0);
}

#[tokio::test(start_paused = true)]
async fn faults_are_met_one_after_another() {
    let mixer = obedient("queue").start().await.unwrap();
    mixer.inject(InjectedFault::Malformed);
    mixer.inject(InjectedFault::Dropped);
    mixer.check(order("allow")).await.expect_error(Code::Internal, "decoded");
    mixer.check(order("allow")).await.expect_error(Code::Internal, "broken off");
    mixer.check(order("allow")).await.expect_allowed();
}

#[tokio::test(start_paused = true)]
async fn the_failure_policy_decides_about_failed_requests() {
    let mut options = BuildOptions::default();
    options.policy = FailurePolicy::CLOSED;
    let mixer = obedient("closed").options(options).start().await.unwrap();
    mixer.inject(InjectedFault::Dropped);
    mixer.check(order("allow")).await.expect_denied(Code::Unavailable, "broken off");
}
