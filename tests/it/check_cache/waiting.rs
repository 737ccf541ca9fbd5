//! Equal requests at the same time.

use std::time::Duration;

use futures_util::{FutureExt as _, future::join_all};
use mixer_adapter::tonic::Code;
use mixer_adapter_engine::CacheOutcome;
use tokio::time::Instant;

use super::{
    STALE,
    backend::{Attributes, Subject, path},
    rule,
};

/// An engine that knows what answers depend on, and whose adapter takes a second.
async fn subject(annotations: &str) -> Subject {
    let subject = Subject::cached(&rule(annotations)).await;
    subject.check(&path("/known")).await.unwrap();
    *subject.script.delay.lock().unwrap() = Duration::from_secs(1);
    subject
}

#[tokio::test(start_paused = true)]
async fn equal_requests_wait_for_one_evaluation() {
    let subject = subject("").await;
    let before = subject.script.calls();
    let request = path("/bad!");
    let answers = join_all((0..100).map(|_| subject.check_until(&request, None))).await;
    assert_eq!(subject.script.calls(), before + 1);
    let mut outcomes = [0; 4];
    for (answer, used) in answers {
        assert_eq!(answer.unwrap().status.code, Code::PermissionDenied as i32);
        outcomes[used.unwrap().outcome as usize] += 1;
    }
    assert_eq!(outcomes[CacheOutcome::Miss as usize], 1);
    assert_eq!(outcomes[CacheOutcome::Coalesced as usize], 99);
}

#[tokio::test(start_paused = true)]
async fn different_requests_do_not_wait_for_one_another() {
    let subject = subject("").await;
    let before = subject.script.calls();
    let start = Instant::now();
    let requests = [path("/one"), path("/two"), path("/three")];
    join_all(requests.iter().map(|request| subject.check(request))).await;
    assert_eq!(subject.script.calls(), before + 3);
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn requests_whose_answers_are_not_cached_wait_only_once() {
    let subject = subject("").await;
    *subject.script.seconds.lock().unwrap() = Some(0);
    let request = path("/path");
    for seconds in [2, 1, 1] {
        let (start, before) = (Instant::now(), subject.script.calls());
        let answers = join_all((0..100).map(|_| subject.check(&request))).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(subject.script.calls(), before + 100);
        assert_eq!(start.elapsed(), Duration::from_secs(seconds));
    }
    // Once they are cached, equal requests wait again.
    *subject.script.seconds.lock().unwrap() = None;
    subject.check(&request).await.unwrap();
    tokio::time::advance(Duration::from_secs(10)).await;
    let before = subject.script.calls();
    join_all((0..100).map(|_| subject.check(&request))).await;
    assert_eq!(subject.script.calls(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn requests_do_not_wait_if_they_differ_in_what_answers_that_are_not_cached_depend_on() {
    let of_methods = "---\nkind: instance\nmetadata: {name: method}\nspec: {template: listentry, params: {value: request.method}}\n---\n\
         kind: rule\nmetadata: {name: methods}\nspec: {match: request.path == \"/m\", actions: [{handler: h, instances: [method]}]}\n";
    let subject = Subject::cached(&(rule("") + of_methods)).await;
    subject.check(&path("/known")).await.unwrap();
    *subject.script.seconds.lock().unwrap() = Some(0);
    let of_method = |method| Attributes { method: Some(method), ..path("/m") };
    subject.check(&of_method("GET")).await.unwrap();
    *subject.script.delay.lock().unwrap() = Duration::from_secs(1);
    let start = Instant::now();
    join_all([of_method("PUT"), of_method("POST")].iter().map(|request| subject.check(request))).await;
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_for_a_cancelled_request_are_answered() {
    let subject = subject("").await;
    let before = subject.script.calls();
    let request = path("/bad!");
    let mut leader = Box::pin(subject.check(&request));
    assert!(leader.as_mut().now_or_never().is_none());
    let followers = join_all((0..10).map(|_| subject.check(&request)));
    let mut followers = Box::pin(followers);
    assert!(followers.as_mut().now_or_never().is_none());
    assert_eq!(subject.script.calls(), before + 1);
    drop(leader);
    for answer in followers.await {
        assert_eq!(answer.unwrap().status.code, Code::PermissionDenied as i32);
    }
    assert_eq!(subject.script.calls(), before + 2, "one of them took over");
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_no_longer_than_its_own_deadline() {
    let subject = subject("").await;
    let request = path("/path");
    let mut leader = Box::pin(subject.check(&request));
    assert!(leader.as_mut().now_or_never().is_none());
    let start = Instant::now();
    let deadline = start + Duration::from_millis(300);
    let (answer, _) = subject.check_until(&request, Some(deadline)).await;
    answer.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_millis(300));
    leader.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_failure_of_one_request_is_not_that_of_those_that_wait() {
    let subject = subject("").await;
    let request = path("/path");
    let deadline = Instant::now() + Duration::from_millis(300);
    let mut leader = Box::pin(subject.check_until(&request, Some(deadline)));
    assert!(leader.as_mut().now_or_never().is_none());
    let follower = subject.check(&request);
    let (leader, follower) = tokio::join!(leader, follower);
    leader.0.unwrap_err();
    assert_eq!(follower.unwrap().status.code, 0);
}

#[tokio::test(start_paused = true)]
async fn while_a_backend_is_down_one_of_the_equal_requests_calls_it() {
    let subject = subject(STALE).await;
    tokio::time::advance(Duration::from_secs(30)).await;
    subject.script.fail(Code::Unavailable);
    let before = subject.script.calls();
    let request = path("/known");
    let answers = join_all((0..100).map(|_| subject.check_until(&request, None))).await;
    assert_eq!(subject.script.calls(), before + 1);
    assert!(answers.iter().all(|(answer, used)| {
        answer.is_ok() && used.as_ref().is_some_and(|used| used.outcome == CacheOutcome::Stale)
    }));
}
