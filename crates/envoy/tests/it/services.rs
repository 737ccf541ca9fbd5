//! Requests that cannot be served as they are: a clear answer, and never one that lets a request pass by mistake.

use std::{sync::Arc, time::Duration};

use mixer_adapter_engine::{Mixer, Snapshot, dispatch::Caller};
use mixer_adapter_envoy::{
    AuthorizationAnswer, EncodedResponse, Options, Services,
    proto::envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::{
            auth::v3::{
                AttributeContext, CheckRequest,
                attribute_context::{HttpRequest, Request},
            },
            ratelimit::v3::{RateLimitRequest, rate_limit_response::Code},
        },
    },
};
use tokio::{runtime::Handle, time::Instant};
use tonic::Code as GrpcCode;

fn services(snapshot: Option<Snapshot>) -> Services {
    let mixer = Arc::new(Mixer::default());
    if let Some(snapshot) = snapshot {
        mixer.replace(snapshot);
    }
    Services::new(mixer, Options::default(), &Handle::current())
}

fn check_of(path: &str) -> CheckRequest {
    let http = HttpRequest { path: path.to_owned(), ..HttpRequest::default() };
    let request = Some(Request { time: None, http: Some(http) });
    CheckRequest { attributes: Some(AttributeContext { request, ..AttributeContext::default() }) }
}

fn is_allowed(response: &AuthorizationAnswer) -> bool {
    response.status.as_ref().is_some_and(|status| status.is_empty())
        && matches!(response.http_response, Some(EncodedResponse::Allowed(_)))
}

#[tokio::test]
async fn without_a_configuration_nothing_is_decided() {
    let services = services(None);
    let error = services.check(&check_of("/"), &Caller::default()).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (GrpcCode::Unavailable, "there is no configuration yet"));
    let error = services.should_rate_limit(RateLimitRequest::default(), Caller::default()).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (GrpcCode::Unavailable, "there is no configuration yet"));
}

#[tokio::test(start_paused = true)]
async fn right_after_the_start_a_check_waits_for_the_first_configuration_until_its_deadline() {
    let mixer = Arc::new(Mixer::default());
    let services = Services::new(mixer.clone(), Options::default(), &Handle::current());
    let in_a_second =
        || Caller { deadline: Some(Instant::now() + Duration::from_secs(1)), ..Caller::default() };
    let error = services.check(&check_of("/"), &in_a_second()).await.unwrap_err();
    assert_eq!(error.message(), "there is no configuration yet");
    let configured = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        mixer.replace(Snapshot::empty());
    };
    let (check, caller) = (check_of("/"), in_a_second());
    let (response, ()) = tokio::join!(services.check(&check, &caller), configured);
    assert!(is_allowed(&response.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_never_comes_is_not_waited_for_by_every_check() {
    let services = services(None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = Instant::now();
    let deadline = Some(before + Duration::from_secs(1));
    let error = services.check(&check_of("/"), &Caller { deadline, ..Caller::default() }).await.unwrap_err();
    assert_eq!((error.message(), Instant::now()), ("there is no configuration yet", before));
}

#[tokio::test]
async fn an_empty_check_is_a_failure_and_not_an_allowed_connection() {
    let services = services(Some(Snapshot::empty()));
    let empty = AttributeContext::default;
    let contexts = [
        empty(),
        AttributeContext { request: Some(Default::default()), ..empty() },
        AttributeContext { source: Some(Default::default()), ..empty() },
    ];
    for attributes in contexts.map(Some).into_iter().chain([None]) {
        let check = CheckRequest { attributes };
        let error = services.check(&check, &Caller::default()).await.unwrap_err();
        assert_eq!((error.code(), error.message()), (GrpcCode::Unavailable, "the check has no attributes"));
    }
    assert!(is_allowed(&services.check(&check_of("/"), &Caller::default()).await.unwrap()));
}

#[tokio::test]
async fn each_decision_has_an_id_of_its_own() {
    let services = services(Some(Snapshot::empty()));
    let mut ids = Vec::new();
    for _ in 0..3 {
        let metadata = services.check(&check_of("/"), &Caller::default()).await.unwrap().dynamic_metadata;
        ids.push(format!("{metadata:?}"));
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn a_domain_without_a_quota_is_ok_whatever_the_hits() {
    let services = services(Some(Snapshot::empty()));
    for (hits, negative) in [(None, false), (Some(0), false), (Some(u64::MAX), false), (Some(u64::MAX), true)]
    {
        let descriptor = RateLimitDescriptor {
            entries: vec![Entry { key: "user".to_owned(), value: "alice".to_owned() }],
            hits_addend: hits,
            is_negative_hits: negative,
            ..RateLimitDescriptor::default()
        };
        let request = RateLimitRequest {
            domain: "unknown".to_owned(),
            descriptors: vec![descriptor.clone(), descriptor],
            hits_addend: u32::MAX,
        };
        let response = services.should_rate_limit(request, Caller::default()).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
        assert!(response.statuses.iter().all(|status| status.code() == Code::Ok));
        assert_eq!(response.statuses.len(), 2, "one for each descriptor");
    }
    let nothing = services.should_rate_limit(RateLimitRequest::default(), Caller::default()).await.unwrap();
    assert_eq!(nothing.overall_code(), Code::Ok);
}

#[tokio::test]
async fn nothing_is_left_to_report_without_access_logs() {
    services(Some(Snapshot::empty())).flush().await;
}
