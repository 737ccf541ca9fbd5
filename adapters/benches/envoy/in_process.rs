//! Calls within the process, without HTTP, for a counter of instructions: the difference of two runs with different numbers of
//! calls is the cost of the calls alone.
//!
//! ```sh
//! valgrind --tool=callgrind target/release/deps/envoy-HASH in-process check 1000
//! ```

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use mixer_adapter::{
    prost::Message as _,
    tonic::{Status, body::Body, codegen::Service as _},
};
use mixer_adapter_core::framework::frame::frame;
use mixer_adapter_engine::dispatch::Caller;
use mixer_adapter_envoy::{
    AccessLogServer, Services,
    proto::envoy::service::{auth::v3::CheckRequest, ratelimit::v3::RateLimitRequest},
};
use tokio::runtime::Builder;

use super::{
    ours::{self, Cache},
    requests,
};

/// Entries in a message of an access log.
const ENTRIES: usize = 50;

/// Makes a number of calls of a kind: `check`, `cached`, `limit`, `log` (a message of 50 entries), `decode` (a check that is only decoded).
pub(super) fn run(kind: &str, calls: usize) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let cache = if kind == "cached" { Cache::On } else { Cache::Off };
        let (services, _) = ours::services(cache).await;
        // As if another request were open: the allocator gives back a page that is empty after each call, which busy servers rarely have.
        let encoded = (requests::check().encode_to_vec(), requests::rate_limit().encode_to_vec());
        let _open = (CheckRequest::decode(Bytes::from(encoded.0)), RateLimitRequest::decode(&*encoded.1));
        match kind {
            "check" | "cached" => {
                let message = Bytes::from(requests::check().encode_to_vec());
                for _ in 0..calls {
                    drop(check(&services, &message).await.expect("an answer"));
                }
            }
            "limit" => {
                let message = requests::rate_limit().encode_to_vec();
                for _ in 0..calls {
                    drop(limit(&services, &message).await.expect("an answer"));
                }
            }
            "decode" => {
                let message = Bytes::from(requests::check().encode_to_vec());
                for _ in 0..calls {
                    drop(CheckRequest::decode(message.clone()).expect("a check"));
                }
            }
            "log" => log(&services, calls).await,
            _ => panic!("{kind} is none of check, cached, limit, log and decode"),
        }
    });
}

async fn check(services: &Services, message: &Bytes) -> Result<Bytes, Status> {
    let request = CheckRequest::decode(message.clone()).expect("a check");
    Ok(frame(&services.check(&request, &Caller::default()).await?))
}

async fn limit(services: &Services, message: &[u8]) -> Result<Bytes, Status> {
    let request = RateLimitRequest::decode(message).expect("a rate limit");
    Ok(frame(&services.should_rate_limit(request, Caller::default()).await?))
}

async fn log(services: &Arc<Services>, messages: usize) {
    let message = requests::frame(&requests::log_message(ENTRIES));
    for _ in 0..messages {
        let request = http::Request::post("/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs")
            .header("content-type", "application/grpc")
            .body(Body::new(Full::new(message.clone())))
            .expect("a request");
        AccessLogServer::new(services.clone()).call(request).await.expect("an answer");
        services.flush().await;
    }
}
