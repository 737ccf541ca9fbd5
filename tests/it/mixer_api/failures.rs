//! Checks that fail, and those that a failure lets through.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use mixer_adapter::{
    prost::Message as _,
    proto::{Any, CheckResult, Status as RpcStatus},
    service::mixer::check,
    tonic::{Code, Status},
};
use mixer_adapter_config::ValidationError;
use mixer_adapter_core::framework::dynamic::DynamicTemplate;
use mixer_adapter_engine::{
    CacheLimits, HandlerBackend, Mixer,
    build::{BoxBackend, BuildOptions, Connect, HandlerSpec},
    dispatch::{Caller, OnFailure},
    proto::istio::mixer::v1::{CheckRequest, check_response::PreconditionResult},
};

use super::engine::{MIXER, RUNTIME, built};

const RULES: &str = "
kind: adapter
metadata: {name: flaky, namespace: istio-system}
spec: {templates: [listentry]}
---
kind: handler
metadata: {name: h, namespace: istio-system}
spec: {adapter: flaky, connection: {address: 'nowhere:1'}}
---
kind: instance
metadata: {name: i, namespace: istio-system}
spec: {template: listentry, params: {value: '\"x\"'}}
---
kind: rule
metadata: {name: r, namespace: istio-system}
spec: {actions: [{handler: h, instances: [i]}]}
";

/// Fails the first call, and denies those after it for a minute.
#[derive(Clone, Default)]
struct Flaky(Arc<AtomicBool>);

impl Connect for Flaky {
    fn connect<'a>(
        &'a self,
        _: &'a HandlerSpec,
    ) -> Pin<Box<dyn Future<Output = Result<BoxBackend, Vec<ValidationError>>> + Send + 'a>> {
        Box::pin(std::future::ready(Ok(Box::new(self.clone()) as BoxBackend)))
    }
}

impl HandlerBackend for Flaky {
    fn call<'a>(
        &'a self,
        _: &'a DynamicTemplate,
        _: Bytes,
        _: &'a Caller,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes, Status>> + Send + 'a>> {
        let denial = RpcStatus { code: Code::PermissionDenied as i32, ..RpcStatus::default() };
        let answer = if self.0.swap(true, Relaxed) {
            Ok(CheckResult { status: Some(denial), ..CheckResult::default() }.encode_to_vec().into())
        } else {
            Err(Status::unavailable("not yet"))
        };
        Box::pin(std::future::ready(answer))
    }

    fn adapter_config(&self) -> Option<Bytes> {
        None
    }
}

/// Denies with details of 3 KiB each.
struct Verbose;

impl Connect for Verbose {
    fn connect<'a>(
        &'a self,
        _: &'a HandlerSpec,
    ) -> Pin<Box<dyn Future<Output = Result<BoxBackend, Vec<ValidationError>>> + Send + 'a>> {
        Box::pin(std::future::ready(Ok(Box::new(Self) as BoxBackend)))
    }
}

impl HandlerBackend for Verbose {
    fn call<'a>(
        &'a self,
        _: &'a DynamicTemplate,
        _: Bytes,
        _: &'a Caller,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes, Status>> + Send + 'a>> {
        let detail = Any { type_url: "t/a.B".to_owned(), value: vec![0; 3 << 10].into() };
        let denial = RpcStatus { code: 7, message: String::new(), details: vec![detail; 3] };
        let answer = CheckResult { status: Some(denial), ..CheckResult::default() };
        Box::pin(std::future::ready(Ok(answer.encode_to_vec().into())))
    }

    fn adapter_config(&self) -> Option<Bytes> {
        None
    }
}

#[test]
fn details_beyond_four_kibibytes_are_omitted_and_counted() {
    RUNTIME.block_on(async {
        let mixer = built(RULES, &Verbose, &BuildOptions::default()).await;
        assert_eq!(checked(&mixer).await.status.unwrap().details.len(), 1);
        assert_eq!(mixer.counts().omitted_details.load(Relaxed), 2);
    });
}

async fn checked(mixer: &Mixer) -> PreconditionResult {
    let answer = check(mixer, CheckRequest::default(), Caller::default()).await;
    answer.unwrap().precondition.unwrap()
}

#[test]
fn an_answer_that_a_failure_let_through_is_not_cached() {
    let mut options = BuildOptions::default();
    options.check_cache = CacheLimits::new(100, 1 << 20);
    options.policy.adapter_error = OnFailure::Open;
    RUNTIME.block_on(async {
        let mixer = built(RULES, &Flaky::default(), &options).await;
        let allowed = checked(&mixer).await;
        assert_eq!(allowed.status.unwrap().code, 0);
        assert_eq!((allowed.valid_duration.unwrap().seconds, allowed.valid_use_count), (1, 10));
        assert_eq!(checked(&mixer).await.status.unwrap().code, Code::PermissionDenied as i32);
    });
}

#[test]
fn a_check_with_words_of_a_later_release_fails() {
    let request = CheckRequest { global_word_count: 10_000, ..CheckRequest::default() };
    let error = RUNTIME.block_on(check(&MIXER, request, Caller::default())).unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert!(error.message().contains("the caller is of a later release"), "{error}");
}

#[test]
fn without_a_configuration_a_check_is_unavailable() {
    let error =
        RUNTIME.block_on(check(&Mixer::new(), CheckRequest::default(), Caller::default())).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Unavailable, "there is no configuration yet"));
}
