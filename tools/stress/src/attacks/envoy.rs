//! What a hostile Envoy can send.

use bytes::Bytes;
use futures_util::future::join_all;
use mixer_adapter_envoy::proto::{
    envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::{
            accesslog::v3::{StreamAccessLogsMessage, stream_access_logs_message::Identifier},
            auth::v3::{
                AttributeContext, CheckRequest, CheckResponse,
                attribute_context::{HttpRequest, Request},
            },
            ratelimit::v3::{RateLimitRequest, RateLimitResponse},
        },
    },
    header_entry,
};
use prost::Message as _;

use super::{Expectation, connections::hold};
use crate::{
    client::{Client, framed},
    server::Addresses,
};

const LOGS: &str = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs";
const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";
const RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// 10,000 streams of access logs on 10 connections, each with one message, which stay open.
pub(super) async fn log_streams(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    let identifier = Identifier { log_name: "stress".to_owned(), ..Identifier::default() };
    let message =
        StreamAccessLogsMessage { identifier: Some(identifier), ..StreamAccessLogsMessage::default() };
    let frame = framed(&message.encode_to_vec());
    let mut held = Vec::new();
    for _ in 0..10 {
        let client = Client::connect(addresses.grpc).await?;
        for _ in 0..1_000 {
            *sent += frame.len() as u64;
            match client.start(LOGS, frame.clone(), false).await {
                Ok(stream) => held.push(stream),
                // The server may have ended the connection.
                Err(_) => break,
            }
        }
    }
    hold(held).await
}

/// 2,000 streams of access logs on 10 connections, of which each announces a message of 4 MB and sends 256 kB of it.
pub(super) async fn half_sent_logs(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    const ANNOUNCED: u32 = 4_000_000;
    const PART: usize = 256_000;
    let half_sent = Bytes::from([&[0][..], &ANNOUNCED.to_be_bytes(), &vec![0; PART]].concat());
    let mut held = Vec::new();
    for _ in 0..10 {
        let client = Client::connect(addresses.grpc).await?;
        for _ in 0..200 {
            match client.start(LOGS, half_sent.clone(), false).await {
                Ok(stream) => {
                    *sent += half_sent.len() as u64;
                    held.push(stream);
                }
                // The server may have ended the connection.
                Err(_) => break,
            }
        }
    }
    hold(held).await
}

/// 18,000 streams on 18 connections, each with 12 kB of a longer message, whose answers no window lets the server send.
pub(super) async fn half_sent_streams(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    const WATCH: &str = "/grpc.health.v1.Health/Watch";
    let part = [&[0, 0, 0, 0x40, 0][..], &[0; 12_000]].concat();
    let mut held = Vec::new();
    for path in [LOGS, REFLECTION, WATCH].repeat(6) {
        let client = Client::with_window(addresses.grpc, 0).await?;
        for _ in 0..1_000 {
            *sent += part.len() as u64;
            match client.start(path, part.clone().into(), false).await {
                Ok(stream) => held.push(stream),
                Err(_) => break,
            }
        }
    }
    hold(held).await
}

/// Checks with headers of almost 4 MB, four at a time, and of 8 MB, which exceed the limit.
pub(super) async fn large_headers(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    let fitting = check_with_headers(3_900);
    let exceeding = check_with_headers(8_000);
    for _ in 0..5 {
        let client = Client::connect(addresses.grpc).await?;
        *sent += 4 * fitting.len() as u64 + exceeding.len() as u64;
        join_all((0..4).map(|_| client.send::<CheckResponse>(CHECK, fitting.clone()))).await;
        // The server may end the stream before all of it is sent.
        if let Ok(Ok(_)) = client.send::<CheckResponse>(CHECK, exceeding.clone()).await {
            return Ok(Expectation::Missed("a check of 8 MB was answered".to_owned()));
        }
    }
    Ok(Expectation::Met)
}

/// A check with headers of a kilobyte each; `kilobytes` is their number.
fn check_with_headers(kilobytes: usize) -> Bytes {
    let headers = (0..kilobytes).map(|index| header_entry(format!("x-{index}"), "v".repeat(1_000))).collect();
    let http = HttpRequest { path: "/".to_owned(), headers, ..HttpRequest::default() };
    let request = Some(Request { http: Some(http), ..Request::default() });
    let attributes = Some(AttributeContext { request, ..AttributeContext::default() });
    framed(&CheckRequest { attributes }.encode_to_vec())
}

/// Rate limits for 20,000 descriptors of ten entries, four at a time.
pub(super) async fn huge_descriptors(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    let entry = |index: usize| Entry { key: format!("key-{index}"), value: "v".to_owned() };
    let descriptor =
        RateLimitDescriptor { entries: (0..10).map(entry).collect(), ..RateLimitDescriptor::default() };
    let request = RateLimitRequest {
        domain: "requests".to_owned(),
        descriptors: vec![descriptor; 20_000],
        ..RateLimitRequest::default()
    };
    let frame = framed(&request.encode_to_vec());
    for _ in 0..5 {
        let client = Client::connect(addresses.grpc).await?;
        *sent += 4 * frame.len() as u64;
        join_all((0..4).map(|_| client.send::<RateLimitResponse>(RATE_LIMIT, frame.clone()))).await;
    }
    Ok(Expectation::Met)
}
