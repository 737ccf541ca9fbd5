//! What becomes of a request in which something fails, by the failure policy: what allows it, and for how long.

use std::time::Duration;

use mixer_adapter::{
    Code,
    template::{ListEntry, Quota},
    testing::{FakeMixer, InjectedFault, Setup, attributes},
};
use mixer_adapter_engine::{
    build::BuildOptions,
    dispatch::{FailurePolicy, OnFailure},
};
use test_adapters::{Probe, Recorded, ownergen::OwnerGen};

use super::{obedient, order};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// The policy that treats every failure alike.
fn every(failure: OnFailure) -> FailurePolicy {
    FailurePolicy::default().match_error(failure).adapter_error(failure).timeout(failure)
}

fn options(failure: OnFailure) -> BuildOptions {
    let mut options = BuildOptions::default();
    options.policy = every(failure);
    options
}

fn fault(code: Code) -> InjectedFault {
    InjectedFault::Error(code, "out of order".to_owned())
}

/// A handler behind a rule whose condition needs an attribute.
fn conditional(ledger: &str) -> Setup<Probe> {
    FakeMixer::with::<Probe>()
        .handler("probe", &*format!("{{ledger: {ledger}}}"))
        .instance::<ListEntry>("order", "value: request.path")
        .rule("request.size > 100", "probe", ["order"])
}

/// A handler that grants three of a quota.
fn rationed(ledger: &str) -> Setup<Probe> {
    FakeMixer::with::<Probe>()
        .handler("probe", &*format!("{{ledger: {ledger}, grant: 3}}"))
        .instance::<Quota>("requests", "dimensions: {path: request.path}")
        .rule("true", "probe", ["requests"])
}

#[tokio::test(start_paused = true)]
async fn a_check_whose_adapter_fails_is_an_error_or_a_denial_unless_it_is_open() {
    for code in [Code::Unavailable, Code::DeadlineExceeded] {
        let mixer = obedient("policy mixer").start().await.unwrap();
        mixer.inject(fault(code));
        mixer.check(order("allow")).await.expect_error(Code::Internal, "out of order");

        let mixer = obedient("policy closed").options(options(OnFailure::Closed)).start().await.unwrap();
        mixer.inject(fault(code));
        let denied = mixer.check(order("allow")).await;
        denied.expect_denied(Code::Unavailable, "out of order").expect_valid(Duration::ZERO, -1);

        let mixer = obedient("policy open").options(options(OnFailure::Open)).start().await.unwrap();
        mixer.inject(fault(code));
        mixer.check(order("allow")).await.expect_allowed().expect_valid(SECOND, 10);
        // Other answers are as valid as the adapter says.
        mixer.check(order("allow")).await.expect_allowed().expect_valid(Duration::from_secs(5), 1000);
        mixer.check(order("deny")).await.expect_denied(Code::PermissionDenied, "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_whose_condition_fails_is_skipped_unless_it_is_closed() {
    let mixer = conditional("match mixer").start().await.unwrap();
    mixer.check(order("deny")).await.expect_allowed().expect_valid(MINUTE, 10_000).expect_calls(0);
    let mixer = conditional("match open").options(options(OnFailure::Open)).start().await.unwrap();
    mixer.check(order("deny")).await.expect_allowed().expect_valid(SECOND, 10).expect_calls(0);
    let mixer = conditional("match closed").options(options(OnFailure::Closed)).start().await.unwrap();
    mixer.check(order("deny")).await.expect_denied(Code::Unavailable, "condition of");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_cannot_be_built_is_a_failed_call() {
    let nothing = || attributes! { "request.size" => 1 };
    let mixer = obedient("instance mixer").start().await.unwrap();
    mixer.check(nothing()).await.expect_error(Code::Internal, "cannot be built");
    let mixer = obedient("instance open").options(options(OnFailure::Open)).start().await.unwrap();
    mixer.check(nothing()).await.expect_allowed().expect_valid(SECOND, 10).expect_calls(0);
    let mixer = obedient("instance closed").options(options(OnFailure::Closed)).start().await.unwrap();
    mixer.check(nothing()).await.expect_denied(Code::Unavailable, "cannot be built");
}

#[tokio::test(start_paused = true)]
async fn a_quota_whose_only_call_fails_is_granted_for_a_second_if_it_is_open() {
    for (failure, granted) in [(OnFailure::Mixer, 0), (OnFailure::Closed, 0), (OnFailure::Open, 5)] {
        let mixer = rationed("rationed").options(options(failure)).start().await.unwrap();
        mixer.inject(fault(Code::Unavailable));
        let answer = mixer.quota("requests", 5, order("/")).await;
        answer.expect_granted(granted);
        if granted > 0 {
            assert_eq!(answer.expect_ok().valid_duration(), SECOND, "{answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_no_rule_knows_is_granted_for_a_minute() {
    let mixer = rationed("unknown quota").start().await.unwrap();
    let answer = mixer.quota("reqeusts", 5, order("/")).await;
    answer.expect_granted(5).expect_calls(0);
    assert_eq!(answer.expect_ok().valid_duration(), MINUTE, "{answer}");
}

/// As `quota-condition-false` in tests/data/dispatch; that a condition cannot be evaluated is another matter.
#[tokio::test(start_paused = true)]
async fn a_quota_whose_rule_does_not_match_is_granted_for_a_minute_whatever_the_policy() {
    let limited = |ledger: &str| {
        FakeMixer::with::<Probe>()
            .handler("probe", &*format!("{{ledger: {ledger}, grant: 3}}"))
            .instance::<Quota>("requests", "dimensions: {path: request.path}")
            .rule("request.size > 100", "probe", ["requests"])
    };
    for (policy, without_size) in [(FailurePolicy::default(), 5), (FailurePolicy::CLOSED, 0)] {
        let mut options = BuildOptions::default();
        options.policy = policy;
        let mixer =
            limited(&format!("unmatched quota {without_size}")).options(options).start().await.unwrap();
        let small = attributes! { "request.path" => "/", "request.size" => 1 };
        let answer = mixer.quota("requests", 5, small).await;
        answer.expect_granted(5).expect_calls(0);
        assert_eq!(answer.expect_ok().valid_duration(), MINUTE, "{answer}");
        let unknown = mixer.quota("requests", 5, attributes! { "request.path" => "/" }).await;
        unknown.expect_granted(without_size).expect_calls(0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_no_rule_matches_is_allowed_for_a_minute() {
    let mixer = conditional("unmatched").start().await.unwrap();
    let small = mixer.check(attributes! { "request.size" => 1, "request.path" => "deny" }).await;
    small.expect_allowed().expect_valid(MINUTE, 10_000).expect_calls(0);
}

#[tokio::test(start_paused = true)]
async fn an_empty_result_is_no_opinion_and_allows_for_a_minute() {
    let mixer = obedient("no opinion").start().await.unwrap();
    mixer.inject(InjectedFault::Answer(bytes::Bytes::new()));
    mixer.check(order("deny")).await.expect_allowed().expect_valid(MINUTE, 10_000);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_an_adapter_is_a_failed_call() {
    let mixer = obedient("policy panic").start().await.unwrap();
    mixer.check(order("panic")).await.expect_error(Code::Internal, "panicked");
    let mixer = obedient("policy panic closed").options(options(OnFailure::Closed)).start().await.unwrap();
    mixer.check(order("panic")).await.expect_denied(Code::Unavailable, "panicked");
}

#[tokio::test(start_paused = true)]
async fn a_failed_attribute_generator_fails_the_check_whatever_the_policy() {
    for failure in [OnFailure::Mixer, OnFailure::Open, OnFailure::Closed] {
        let mixer = FakeMixer::with::<Recorded>()
            .handler("recorded", "limit: 1")
            .instance::<OwnerGen>("owner", "uid: request.path")
            .rule("true", "recorded", ["owner"])
            .options(options(failure))
            .start()
            .await
            .unwrap();
        mixer.check(order("/")).await.expect_allowed();
        mixer.inject(fault(Code::Unavailable));
        mixer.check(order("/")).await.expect_error(Code::Internal, "preprocessing attributes failed");
    }
}
