#![no_main]

use std::sync::{Arc, LazyLock};

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use mixer_adapter::prost::Message as _;
use mixer_adapter_engine::dispatch::Caller;
use mixer_adapter_envoy::{
    AccessLogServer, Options, Services,
    proto::envoy::service::{auth::v3::CheckRequest, ratelimit::v3::RateLimitRequest},
};
use tonic::{
    body::Body,
    codegen::{Service as _, http},
};

#[path = "../../tests/it/mixer_api/engine.rs"]
#[allow(dead_code, reason = "the engine of another target is a static of the same file")]
mod engine;

static SERVICES: LazyLock<Arc<Services>> = LazyLock::new(|| {
    let mixer = engine::RUNTIME.block_on(engine::mixer());
    Arc::new(Services::new(Arc::new(mixer), Options::default(), engine::RUNTIME.handle()))
});

/// A stream of access logs with one message.
fn access_log(message: &[u8]) -> http::Request<Body> {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    http::Request::post("/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs")
        .header("content-type", "application/grpc")
        .body(Body::new(Full::<Bytes>::new(frame.freeze())))
        .expect("a valid request")
}

// A check, a rate limit and an access log. An answer to a check always has a status: the default of the message allows.
fuzz_target!(|bytes: &[u8]| {
    let services = &*SERVICES;
    engine::RUNTIME.block_on(async {
        if let Ok(request) = CheckRequest::decode(bytes)
            && let Ok(response) = services.check(&request, &Caller::default()).await
        {
            assert!(response.status.is_some() && response.http_response.is_some());
        }
        if let Ok(request) = RateLimitRequest::decode(bytes) {
            let _ = services.should_rate_limit(request, Caller::default()).await;
        }
        let Ok(_) = AccessLogServer::new(services.clone()).call(access_log(bytes)).await;
    });
});
