//! Hits are given back whatever becomes of the call that took them.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use mixer_adapter_engine::dispatch::Caller;
use mixer_adapter_envoy::{
    Options, Services,
    proto::envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::ratelimit::v3::{RateLimitRequest, rate_limit_response::Code},
    },
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};
use tonic::Code as GrpcCode;

use super::backend::{RELEASE, Script, engine};

/// A quota that is all or nothing, and one that is not.
const QUOTAS: &str = r#"
kind: instance
metadata: {name: first, namespace: istio-system, annotations: {mixer-adapter/all-or-nothing: "true"}}
spec: {template: quota, params: {dimensions: {}}}
---
kind: instance
metadata: {name: second, namespace: istio-system}
spec: {template: quota, params: {dimensions: {}}}
---
kind: rule
metadata: {name: quotas, namespace: istio-system}
spec: {actions: [{handler: h, instances: [first, second]}]}
"#;

/// The first quota is that of another handler, too, which fails.
const BROKEN: &str = r#"
---
kind: rule
metadata: {name: broken, namespace: istio-system}
spec: {actions: [{handler: broken, instances: [first]}]}
"#;

/// A quota of the name of the first one in the namespace of the requests.
const SLOW_TWIN: &str = r#"
---
kind: instance
metadata: {name: first, namespace: any}
spec: {template: quota.istio-system, params: {dimensions: {}}}
---
kind: rule
metadata: {name: twin, namespace: any}
spec: {actions: [{handler: h.istio-system, instances: [first]}]}
"#;

const TWIN: &str = "first.instance.any";

/// Another quota that is all or nothing.
const FURTHER: &str = r#"
---
kind: instance
metadata: {name: further, namespace: istio-system, annotations: {mixer-adapter/all-or-nothing: "true"}}
spec: {template: quota, params: {dimensions: {}}}
---
kind: rule
metadata: {name: further, namespace: istio-system}
spec: {actions: [{handler: h, instances: [further]}]}
"#;

const FURTHER_NAME: &str = "further.instance.istio-system";

/// Quotas whose rules have no form, one, and one that reads an absent attribute; and one past whose limit requests pass.
const FORMS: &str = r#"
kind: instance
metadata: {name: plain, namespace: istio-system}
spec: {template: quota, params: {dimensions: {}}}
---
kind: instance
metadata: {name: formed, namespace: istio-system}
spec: {template: quota, params: {dimensions: {}}}
---
kind: instance
metadata: {name: unformed, namespace: istio-system}
spec: {template: quota, params: {dimensions: {}}}
---
kind: instance
metadata: {name: soft, namespace: istio-system, annotations: {mixer-adapter/rate-limit-mode: soft}}
spec: {template: quota, params: {dimensions: {}}}
---
kind: rule
metadata: {name: plain, namespace: istio-system}
spec: {actions: [{handler: h, instances: [plain]}]}
---
kind: rule
metadata:
  name: formed
  namespace: istio-system
  annotations:
    mixer-adapter/denial: |
      headers: {x-code: denial.code}
      body: ratelimit.domain + ":" + ratelimit.descriptor["quota"]
spec: {actions: [{handler: h, instances: [formed, soft]}]}
---
kind: rule
metadata: {name: unformed, namespace: istio-system, annotations: {mixer-adapter/denial: "body: source.name"}}
spec: {actions: [{handler: h, instances: [unformed]}]}
"#;

const FIRST: &str = "first.instance.istio-system";
const SECOND: &str = "second.instance.istio-system";

/// The time that an adapter takes which is slow.
const SLOW: Duration = Duration::from_secs(2);

async fn services() -> (Services, Arc<Script>) {
    services_of(QUOTAS).await
}

async fn services_of(rules: &str) -> (Services, Arc<Script>) {
    let (mixer, script) = engine(rules).await;
    (Services::new(mixer, Options::default(), &Handle::current()), script)
}

/// A call for one hit of the first quota, and one of the second.
fn request() -> RateLimitRequest {
    request_of(&["first", "second"])
}

/// A call for one hit of each quota.
fn request_of(quotas: &[&str]) -> RateLimitRequest {
    let descriptors = quotas.iter().map(|&quota| RateLimitDescriptor {
        entries: vec![Entry { key: "quota".to_owned(), value: quota.to_owned() }],
        ..RateLimitDescriptor::default()
    });
    RateLimitRequest { domain: "any".to_owned(), descriptors: descriptors.collect(), hits_addend: 0 }
}

fn caller(patience: Duration) -> Caller {
    Caller { deadline: Some(Instant::now() + patience), ..Caller::default() }
}

#[tokio::test(start_paused = true)]
async fn quotas_of_descriptors_are_requested_at_the_same_time() {
    let (services, script) = services().await;
    [FIRST, SECOND].iter().for_each(|quota| script.delay(quota, SLOW));
    let start = Instant::now();
    let response = services.should_rate_limit(request(), Caller::default()).await.unwrap();
    assert_eq!((response.overall_code(), start.elapsed()), (Code::Ok, SLOW));
    assert_eq!((script.calls(FIRST), script.calls(SECOND)), (vec![1], vec![1]));
}

#[tokio::test(start_paused = true)]
async fn hits_of_a_call_that_fails_at_its_deadline_are_given_back() {
    let (services, script) = services().await;
    script.delay(SECOND, SLOW);
    let error = services.should_rate_limit(request(), caller(SLOW / 2)).await.unwrap_err();
    assert_eq!(error.code(), GrpcCode::Unavailable);
    services.flush().await;
    assert_eq!(script.calls(FIRST), [1, -1]);
}

#[tokio::test(start_paused = true)]
async fn hits_are_given_back_if_the_client_goes_away() {
    let (services, script) = services().await;
    script.delay(SECOND, SLOW);
    let call = services.should_rate_limit(request(), Caller::default());
    timeout(SLOW / 2, call).await.unwrap_err();
    services.flush().await;
    assert_eq!(script.calls(FIRST), [1, -1]);
    assert!(script.calls(SECOND).is_empty(), "the call has ended");
}

#[tokio::test(start_paused = true)]
async fn hits_that_are_being_given_back_are_waited_for_after_the_client_has_gone() {
    let (services, script) = services().await;
    script.exhaust(SECOND);
    script.delay(RELEASE, SLOW);
    let call = services.should_rate_limit(request(), Caller::default());
    timeout(SLOW / 2, call).await.unwrap_err();
    assert_eq!(script.calls(FIRST), [1]);
    services.flush().await;
    assert_eq!(script.calls(FIRST), [1, -1]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_answered_before_the_deadline_while_hits_are_being_given_back() {
    let (services, script) = services().await;
    script.exhaust(SECOND);
    script.delay(RELEASE, SLOW);
    let caller = caller(SLOW / 2);
    let response = services.should_rate_limit(request(), caller.clone()).await.unwrap();
    assert_eq!(response.overall_code(), Code::OverLimit);
    assert!(Instant::now() < caller.deadline.unwrap());
    services.flush().await;
    assert_eq!(script.calls(FIRST), [1, -1]);
}

#[tokio::test(start_paused = true)]
async fn hits_that_cannot_be_given_back_are_counted() {
    let (services, script) = services().await;
    script.exhaust(SECOND);
    script.delay(RELEASE, Duration::from_secs(3600));
    let response = services.should_rate_limit(request(), Caller::default()).await.unwrap();
    assert_eq!(response.overall_code(), Code::OverLimit);
    services.flush().await;
    assert_eq!((script.calls(FIRST), services.counters().hits_lost.load(Relaxed)), (vec![1], 1));
}

#[tokio::test(start_paused = true)]
async fn hits_of_which_less_is_taken_back_are_counted() {
    let (services, script) = services().await;
    script.exhaust(SECOND);
    script.take_nothing_back(FIRST);
    services.should_rate_limit(request(), Caller::default()).await.unwrap();
    services.flush().await;
    assert_eq!((script.calls(FIRST), services.counters().hits_lost.load(Relaxed)), (vec![1, -1], 1));
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_its_hits_back_if_another_one_of_the_quota_fails() {
    let rules = QUOTAS.to_owned() + BROKEN;
    let (services, script) = services_of(&rules).await;
    let error = services.should_rate_limit(request(), Caller::default()).await.unwrap_err();
    assert_eq!(error.code(), GrpcCode::Unavailable);
    services.flush().await;
    assert_eq!((script.calls(FIRST), services.counters().hits_lost.load(Relaxed)), (vec![1, -1], 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_its_hits_back_if_the_client_goes_away_before_another_one_answers() {
    let rules = QUOTAS.to_owned() + SLOW_TWIN;
    let (services, script) = services_of(&rules).await;
    script.delay(TWIN, SLOW);
    let request = RateLimitRequest { domain: "any/any".to_owned(), ..request() };
    let call = services.should_rate_limit(request, Caller::default());
    timeout(SLOW / 2, call).await.unwrap_err();
    services.flush().await;
    assert_eq!(script.calls(FIRST), [1, -1]);
}

#[tokio::test(start_paused = true)]
async fn hits_are_given_back_all_at_once_and_count_no_evaluations() {
    let rules = QUOTAS.to_owned() + FURTHER;
    let (mixer, script) = engine(&rules).await;
    let services = Services::new(mixer.clone(), Options::default(), &Handle::current());
    script.exhaust(SECOND);
    script.delay(RELEASE, SLOW);
    let start = Instant::now();
    services.should_rate_limit(request_of(&["first", "further", "second"]), Caller::default()).await.unwrap();
    assert_eq!(start.elapsed(), SLOW, "both at once");
    assert_eq!((script.calls(FIRST), script.calls(FURTHER_NAME)), (vec![1, -1], vec![1, -1]));
    let instances = mixer.snapshot().unwrap().resource_counts().instances.all();
    let built = instances.into_iter().find(|(name, _)| &**name == FIRST).unwrap().1.built.load(Relaxed);
    assert_eq!(built, 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_refused_descriptor_whose_rule_has_a_form_gives_the_response_its_headers_and_body() {
    let quotas = ["plain", "unformed", "formed", "soft"];
    for (exhausted, code, body) in [
        (&["soft"][..], Code::Ok, ""),
        (&["plain"], Code::OverLimit, ""),
        (&["unformed"], Code::OverLimit, ""),
        (&["formed"], Code::OverLimit, "any:formed"),
        (&quotas, Code::OverLimit, "any:formed"),
    ] {
        let (services, script) = services_of(FORMS).await;
        exhausted.iter().for_each(|quota| script.exhaust(&format!("{quota}.instance.istio-system")));
        let response = services.should_rate_limit(request_of(&quotas), Caller::default()).await.unwrap();
        assert_eq!((response.overall_code(), &*response.raw_body), (code, body.as_bytes()), "{exhausted:?}");
        let headers = response.response_headers_to_add.iter();
        let headers: Vec<_> = headers.map(|header| (&*header.key, &*header.value)).collect();
        let expected: &[(&str, &str)] =
            if body.is_empty() { &[] } else { &[("x-code", "RESOURCE_EXHAUSTED")] };
        assert_eq!((&*headers, response.request_headers_to_add.len()), (expected, 0), "{exhausted:?}");
    }
}
