#![no_main]

use std::sync::{Arc, LazyLock};

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use mixer_adapter::prost::Message as _;
use mixer_adapter_engine::dispatch::Caller;
use mixer_adapter_envoy::{
    Options, Services,
    proto::envoy::service::{
        accesslog::v3::access_log_service_server::AccessLogService as _, auth::v3::CheckRequest,
        ratelimit::v3::RateLimitRequest,
    },
};
use tonic::{Request, Streaming};
use tonic_prost::ProstDecoder;

#[path = "../../tests/mixer_api/engine.rs"]
#[allow(dead_code, reason = "the engine of another target is a static of the same file")]
mod engine;

static SERVICES: LazyLock<Services> = LazyLock::new(|| {
    let mixer = engine::RUNTIME.block_on(engine::mixer());
    Services::new(Arc::new(mixer), Options::default(), engine::RUNTIME.handle())
});

/// A stream of one message.
fn stream<M: mixer_adapter::prost::Message + Default + 'static>(message: &[u8]) -> Streaming<M> {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    Streaming::new_request(ProstDecoder::<M>::default(), Full::<Bytes>::new(frame.freeze()), None, None)
}

// A check, a rate limit and an access log. An answer to a check always has a status: the default of the message allows.
fuzz_target!(|bytes: &[u8]| {
    let services = &*SERVICES;
    engine::RUNTIME.block_on(async {
        if let Ok(request) = CheckRequest::decode(bytes)
            && let Ok(response) = services.check(request, Caller::default()).await
        {
            assert!(response.status.is_some() && response.http_response.is_some());
        }
        if let Ok(request) = RateLimitRequest::decode(bytes) {
            let _ = services.should_rate_limit(request, Caller::default()).await;
        }
        let _ = services.stream_access_logs(Request::new(stream(bytes))).await;
    });
});
