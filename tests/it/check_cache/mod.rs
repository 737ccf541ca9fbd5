//! The cache of check answers: what is cached, for how long, who waits for whom, and that answers are those without a cache.

mod backend;
mod costs;
mod equivalence;
mod waiting;

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use backend::{Attributes, CACHE, Subject, path};
use mixer_adapter::tonic::Code;
use mixer_adapter_engine::{
    CacheOutcome,
    build::BuildOptions,
    dispatch::{Caller, CheckAnswer, FailurePolicy, OnFailure, Request},
};
use tokio::time::advance;

/// A rule that sends the path to the adapter, with annotations.
fn rule(annotations: &str) -> String {
    format!(
        "kind: instance\nmetadata: {{name: path}}\nspec: {{template: listentry, params: {{value: request.path}}}}\n---\n\
         kind: rule\nmetadata:\n  name: check-path\n  annotations: {{{annotations}}}\nspec: {{actions: [{{handler: h, instances: [path]}}]}}\n"
    )
}

const STALE: &str = "mixer-adapter/cache-stale-if-error: 1m";

#[tokio::test(start_paused = true)]
async fn allowing_and_denying_answers_are_cached_for_as_long_as_the_adapter_allows() {
    let subject = Subject::cached(&rule("")).await;
    for (request, code) in [(path("/four"), Code::Ok), (path("/bad!"), Code::PermissionDenied)] {
        let calls = subject.script.calls();
        for remaining in [5, 4, 3] {
            let answer = subject.check(&request).await.unwrap();
            assert_eq!(answer.status.code, code as i32);
            assert_eq!(answer.valid_duration.seconds, remaining);
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(subject.script.calls(), calls + 1);
        advance(Duration::from_secs(2)).await;
        subject.check(&request).await.unwrap();
        assert_eq!(subject.script.calls(), calls + 2);
    }
}

#[tokio::test(start_paused = true)]
async fn the_validity_of_an_answer_counts_from_the_start_of_its_evaluation() {
    let subject = Subject::cached(&rule("")).await;
    *subject.script.delay.lock().unwrap() = Duration::from_secs(3);
    subject.check(&path("/four")).await.unwrap();
    assert_eq!(subject.check(&path("/four")).await.unwrap().valid_duration.seconds, 2);
    advance(Duration::from_secs(2)).await;
    subject.check(&path("/four")).await.unwrap();
    assert_eq!(subject.script.calls(), 2);

    *subject.script.delay.lock().unwrap() = Duration::from_secs(7);
    advance(Duration::from_secs(5)).await;
    for calls in 3..5 {
        subject.check(&path("/four")).await.unwrap();
        assert_eq!(subject.script.calls(), calls, "expired when it was complete");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_used_as_often_as_the_adapter_allows() {
    let subject = Subject::cached(&rule("")).await;
    subject.script.uses.lock().unwrap().insert("h", 3);
    for _ in 0..6 {
        subject.check(&path("/path")).await.unwrap();
    }
    assert_eq!(subject.script.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn unlimited_uses_of_one_adapter_do_not_lift_the_limit_of_another() {
    let two = rule("").replace(
        "{handler: h, instances: [path]}",
        "{handler: h, instances: [path]}, {handler: other, instances: [path]}",
    );
    for (uses, evaluations) in
        [([-1, 3], 2), ([3, -1], 2), ([-5, 3], 2), ([4, 3], 2), ([-1, 0], 6), ([0, -1], 6), ([-1, -1], 1)]
    {
        let subject = Subject::cached(&two).await;
        subject.script.uses.lock().unwrap().extend([("h", uses[0]), ("other", uses[1])]);
        for _ in 0..6 {
            let answer = subject.check(&path("/path")).await.unwrap();
            // As in Mixer.
            assert_eq!(answer.valid_use_count < 0, uses.iter().any(|uses| *uses < 0), "{uses:?}");
        }
        assert_eq!(subject.script.calls(), evaluations * 2, "{uses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_duration_is_not_cached_whatever_its_uses() {
    let subject = Subject::cached(&rule("")).await;
    *subject.script.seconds.lock().unwrap() = Some(0);
    for uses in [-1, 3] {
        subject.script.uses.lock().unwrap().insert("h", uses);
        let calls = subject.script.calls();
        for _ in 0..3 {
            subject.check(&path("/path")).await.unwrap();
        }
        assert_eq!(subject.script.calls(), calls + 3, "{uses}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_use_of_the_cache_is_described_and_counted() {
    let subject = Subject::cached(&rule("")).await;
    for outcome in [CacheOutcome::Miss, CacheOutcome::Hit] {
        let used = subject.check_until(&path("/four"), None).await.1.unwrap();
        assert_eq!(used.outcome, outcome);
        let key = used.key.unwrap();
        assert_eq!(key.valid_for, Duration::from_secs(5));
        // The first two determine the namespace.
        let names: Vec<&str> = key.names.iter().map(|name| &**name).collect();
        assert_eq!(names, ["context.reporter.kind", "destination.namespace", "request.path"]);
    }
    let snapshot = subject.snapshot();
    let counts = snapshot.cache_counts();
    assert_eq!(counts.requests.each_ref().map(|count| count.load(SeqCst)), [1, 1, 0, 0, 0]);
    assert_eq!(counts.saved_calls.load(SeqCst), 1);
    assert_eq!(snapshot.cache_size().answers, 1);
}

#[tokio::test(start_paused = true)]
async fn a_cached_answer_names_its_rules_for_a_later_request() {
    let options = BuildOptions::default().check_cache(CACHE);
    let subject = Subject::start(&rule(""), options).await;
    let (snapshot, caller) = (subject.snapshot(), Caller::default());
    let request = || {
        let mut bag = snapshot.bag();
        bag.insert("request.path", "/bad!");
        Request::new(&snapshot, bag, &caller)
    };
    request().answer().await.unwrap();
    let answer = request().with_rules(true).answer().await.unwrap();
    let rules: Vec<&str> = answer.details.rules.iter().map(|rule| &**rule).collect();
    assert_eq!(rules, ["check-path.rule.istio-system"]);
    assert_eq!(subject.script.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_brings_an_attribute_does_not_get_the_answer_of_one_for_which_it_was_generated() {
    let rules = r#"
kind: instance
metadata: {name: pods}
spec:
  template: kubernetes
  params: {source_uid: source.uid}
  attribute_bindings: {source.owner: output.source_owner}
---
kind: instance
metadata: {name: owner}
spec: {template: listentry, params: {value: source.owner}}
---
kind: rule
metadata: {name: owners}
spec: {actions: [{handler: h, instances: [pods, owner]}]}
"#;
    let subject = Subject::cached(rules).await;
    let generated = Attributes { uid: Some("good.shop"), ..path("/") };
    let brought = Attributes { owner: Some("bad"), ..generated.clone() };
    for (request, outcome, code) in [
        (&generated, CacheOutcome::Miss, Code::Ok),
        (&brought, CacheOutcome::Miss, Code::PermissionDenied),
        (&generated, CacheOutcome::Hit, Code::Ok),
        (&brought, CacheOutcome::Hit, Code::PermissionDenied),
    ] {
        let (answer, used) = subject.check_until(request, None).await;
        assert_eq!(used.unwrap().outcome, outcome, "{request:?}");
        assert_eq!(answer.unwrap().status.code, code as i32, "{request:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn header_operations_and_bindings_depend_on_the_keys_of_a_map_that_they_read() {
    let rules = r#"
kind: instance
metadata: {name: pods}
spec:
  template: kubernetes
  params: {source_uid: source.uid}
  attribute_bindings: {source.owner: '(request.headers["owner"] | "") + output.source_owner'}
---
kind: rule
metadata: {name: operations}
spec:
  actions: [{handler: h, instances: [pods]}]
  requestHeaderOperations: [{name: x-user, values: ['(request.headers["user"] | request.headers["x-user"]) + source.owner']}]
"#;
    let subject = Subject::cached(rules).await;
    let request = |headers: &[(&'static str, &'static str)]| Attributes {
        uid: Some("app.shop"),
        headers: Some(headers.to_vec()),
        ..path("/")
    };
    for (headers, outcome) in [
        (&[("x-user", "a"), ("id", "1")], CacheOutcome::Miss),
        (&[("x-user", "a"), ("id", "2")], CacheOutcome::Hit),
        (&[("x-user", "b"), ("id", "1")], CacheOutcome::Miss),
        (&[("x-user", "a"), ("owner", "o")], CacheOutcome::Miss),
        (&[("x-user", "a"), ("user", "b")], CacheOutcome::Miss),
    ] {
        let used = subject.check_until(&request(headers), None).await.1.unwrap();
        assert_eq!(used.outcome, outcome, "{headers:?}");
        let names: Vec<String> = used.key.unwrap().names.iter().map(ToString::to_string).collect();
        let mut expected = vec![
            "context.reporter.kind",
            "destination.namespace",
            "request.headers[owner]",
            "request.headers[user]",
            "request.headers[x-user]",
            "source.owner",
            "source.uid",
        ];
        if headers.iter().any(|(name, _)| *name == "user") {
            expected.retain(|name| *name != "request.headers[x-user]");
        }
        assert_eq!(names, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_not_cached() {
    let subject = Subject::cached(&rule("")).await;
    subject.script.fail(Code::Unavailable);
    for calls in 1..4 {
        subject.check(&path("/path")).await.unwrap_err();
        assert_eq!(subject.script.calls(), calls);
    }
    subject.script.fail(None);
    assert_eq!(subject.check(&path("/path")).await.unwrap().status.code, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_let_through_or_denied_after_a_failure_is_not_cached() {
    for (policy, code) in [(OnFailure::Open, Code::Ok), (OnFailure::Closed, Code::Unavailable)] {
        let mut options = BuildOptions::default();
        options.strict_check_cache = CACHE;
        options.policy = FailurePolicy::default().adapter_error(policy);
        let subject = Subject::start(&rule(""), options).await;
        subject.script.fail(Code::Internal);
        for calls in 1..4 {
            assert_eq!(subject.check(&path("/path")).await.unwrap().status.code, code as i32);
            assert_eq!(subject.script.calls(), calls, "{policy:?}");
        }
        assert_eq!(subject.snapshot().cache_size().answers, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_limits_the_life_of_its_answers() {
    let subject = Subject::cached(&rule("mixer-adapter/cache-max-age: 2s")).await;
    assert_eq!(subject.check(&path("/path")).await.unwrap().valid_duration.seconds, 2);
    advance(Duration::from_secs(2)).await;
    subject.check(&path("/path")).await.unwrap();
    assert_eq!(subject.script.calls(), 2);

    let subject = Subject::cached(&rule("mixer-adapter/cache-max-age: 0s")).await;
    for calls in 1..4 {
        subject.check(&path("/path")).await.unwrap();
        assert_eq!(subject.script.calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_used_while_the_backend_is_down_where_the_rule_allows_it() {
    for (annotations, is_allowed) in [(STALE, true), ("", false)] {
        let subject = Subject::cached(&rule(annotations)).await;
        subject.check(&path("/bad!")).await.unwrap();
        for code in [Code::Unavailable, Code::DeadlineExceeded] {
            advance(Duration::from_secs(10)).await;
            subject.script.fail(code);
            let (answer, used) = subject.check_until(&path("/bad!"), None).await;
            if is_allowed {
                assert_eq!(answer.unwrap().status.code, Code::PermissionDenied as i32);
                assert_eq!(used.unwrap().outcome, CacheOutcome::Stale);
            } else {
                drop(answer.unwrap_err())
            }
        }
        // Within a second there are no further calls.
        let calls = subject.script.calls();
        assert_eq!(subject.check(&path("/bad!")).await.is_ok(), is_allowed);
        assert_eq!(subject.script.calls() == calls, is_allowed);
        advance(Duration::from_secs(1)).await;
        subject.script.fail(None);
        assert_eq!(subject.check(&path("/bad!")).await.unwrap().valid_duration.seconds, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn stale_answers_are_bounded_in_time() {
    let subject = Subject::cached(&rule(STALE)).await;
    subject.check(&path("/four")).await.unwrap();
    subject.script.fail(Code::Unavailable);
    for _ in 0..64 {
        advance(Duration::from_secs(1)).await;
        subject.check(&path("/four")).await.unwrap();
    }
    advance(Duration::from_secs(1)).await;
    subject.check(&path("/four")).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_not_used_after_other_failures_or_if_another_rule_does_not_allow_it() {
    let subject = Subject::cached(&rule(STALE)).await;
    subject.check(&path("/four")).await.unwrap();
    advance(Duration::from_secs(10)).await;
    subject.script.fail(Code::Internal);
    subject.check(&path("/four")).await.unwrap_err();

    let second =
        "---\nkind: rule\nmetadata: {name: second}\nspec: {actions: [{handler: h, instances: [path]}]}\n";
    let subject = Subject::cached(&(rule(STALE) + second)).await;
    subject.check(&path("/four")).await.unwrap();
    advance(Duration::from_secs(10)).await;
    subject.script.fail(Code::Unavailable);
    subject.check(&path("/four")).await.unwrap_err();
}

/// An engine whose rule sends the path to two handlers, with a cached answer that allows `/path` and has expired.
async fn two_handlers(policy: FailurePolicy) -> Subject {
    let mut options = BuildOptions::default();
    options.strict_check_cache = CACHE;
    options.policy = policy;
    let rule = rule(STALE).replace("[{handler: h,", "[{handler: other, instances: [path]}, {handler: h,");
    let subject = Subject::start(&rule, options).await;
    assert_eq!(subject.check(&path("/path")).await.unwrap().status.code, 0);
    advance(Duration::from_secs(10)).await;
    subject
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_overrides_neither_a_denial_nor_a_failure_of_a_handler_that_is_up() {
    for closed in [false, true] {
        let policy = if closed { FailurePolicy::CLOSED } else { FailurePolicy::default() };
        let subject = two_handlers(policy).await;
        subject.script.fail(Code::Unavailable);
        subject.script.deny("other");
        let is_allowed = |answer: Result<CheckAnswer, _>| answer.is_ok_and(|answer| answer.status.code == 0);
        assert!(!is_allowed(subject.check(&path("/path")).await), "denied");
        // The denial is newer than the cached answer.
        subject.script.fail_handler("other", Code::Unavailable);
        assert!(!is_allowed(subject.check(&path("/path")).await), "both handlers are down after the denial");

        let subject = two_handlers(policy).await;
        subject.script.fail(Code::Unavailable);
        subject.script.fail_handler("other", Code::Internal);
        assert!(!is_allowed(subject.check(&path("/path")).await), "failed");
        subject.script.fail_handler("other", Code::Unavailable);
        assert!(is_allowed(subject.check(&path("/path")).await), "both handlers are down");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_not_older_than_one_that_is_not_cached() {
    let subject = Subject::cached(&rule(STALE)).await;
    subject.check(&path("/path")).await.unwrap();
    advance(Duration::from_secs(10)).await;
    *subject.script.seconds.lock().unwrap() = Some(0);
    subject.script.deny("h");
    assert_eq!(subject.check(&path("/path")).await.unwrap().status.code, Code::PermissionDenied as i32);
    subject.script.fail(Code::Unavailable);
    subject.check(&path("/path")).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_new_configuration_has_an_empty_cache() {
    let subject = Subject::cached(&rule("")).await;
    subject.check(&path("/path")).await.unwrap();
    let former = subject.snapshot();
    subject.configure(&rule(STALE)).await;
    assert_eq!(former.cache_size().bytes, 0, "requests in progress do not keep its memory");
    assert_eq!(subject.snapshot().cache_size().answers, 0);
    subject.check(&path("/path")).await.unwrap();
    assert_eq!(subject.script.calls(), 2);
    let counts = subject.snapshot();
    assert_eq!(
        counts.cache_counts().requests[CacheOutcome::Miss as usize].load(SeqCst),
        2,
        "counts continue"
    );
}

#[tokio::test(start_paused = true)]
async fn faults_of_annotations_name_the_line_and_the_value() {
    let subject = Subject::cached(&rule("")).await;
    for (annotation, fault) in [
        (
            "mixer-adapter/cache-max-age: soon",
            r#"the value is not valid; write a duration like "300ms", "5s" or "1m30s""#,
        ),
        (
            "mixer-adapter/cache-max-age: -5s",
            r#"the value is not valid; write a duration like "300ms", "5s" or "1m30s""#,
        ),
        (
            "mixer-adapter/cache-stale-if-error: 25h",
            r#"the value is not valid; write a duration of at most 24 hours, like "30s" or "5m""#,
        ),
        (
            "mixer-adapter/cache-max-life: 5s",
            "unknown annotation of rules; write one of mixer-adapter/cache-max-age, mixer-adapter/cache-stale-if-error",
        ),
    ] {
        let mut faults = subject.try_configure(&rule(annotation)).await.unwrap_err();
        // Of the rule's instance, which has the query in its value.
        faults.retain(|fault| !fault.contains(": warning: "));
        let name = annotation.split(':').next().unwrap();
        let [text] = faults.as_slice() else { panic!("{faults:?}") };
        assert!(text.starts_with("rules.yaml:8"), "{text}");
        assert!(text.contains(&format!("metadata.annotations[\"{name}\"]")), "{text}");
        assert!(text.contains(fault), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_bounded_in_bytes_and_shared_by_namespaces_with_rules() {
    let of_shop = "---\nkind: rule\nmetadata: {name: of-shop, namespace: shop}\n\
         spec: {actions: [{handler: h.istio-system, instances: [path.istio-system]}]}\n";
    let subject = Subject::cached(&(rule("") + of_shop)).await;
    // Callers choose namespaces, but not the number of shares.
    for number in 0..1000 {
        let namespace = Some(&*format!("ns-{number}").leak());
        subject.check(&Attributes { namespace, ..path("/") }).await.unwrap();
    }
    let paths: Vec<&'static str> = (0..5_000).map(|number| &*format!("/{number:0>200}").leak()).collect();
    subject.check(&path("/of-shop-and-used-again")).await.unwrap();
    for path in paths {
        let request = Attributes { path, namespace: Some("flood"), ..Attributes::default() };
        subject.check(&request).await.unwrap();
    }
    let size = subject.snapshot().cache_size();
    assert!(size.bytes <= CACHE.bytes && size.bytes > CACHE.bytes / 2, "{size:?}");
    assert!(subject.snapshot().cache_counts().evictions.load(SeqCst) > 0);
    let used = subject.check_until(&path("/of-shop-and-used-again"), None).await.1.unwrap();
    assert_eq!(used.outcome, CacheOutcome::Hit);
}
