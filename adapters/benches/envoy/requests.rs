//! Requests like those of the real Envoy.

use bytes::{BufMut as _, Bytes, BytesMut};
use mixer_adapter::{prost::Message, prost_types::Timestamp};
use mixer_adapter_envoy::proto::{
    envoy::{
        config::core::v3::{Address, SocketAddress, address, socket_address::PortSpecifier},
        data::accesslog::v3::{
            AccessLogCommon, HttpAccessLogEntry, HttpRequestProperties, HttpResponseProperties,
        },
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::{
            accesslog::v3::{
                StreamAccessLogsMessage,
                stream_access_logs_message::{HttpAccessLogEntries, LogEntries},
            },
            auth::v3::{
                AttributeContext, CheckRequest,
                attribute_context::{HttpRequest, Peer, Request},
            },
            ratelimit::v3::RateLimitRequest,
        },
    },
    header_entry,
};

const NOW: Timestamp = Timestamp { seconds: 1_790_000_000, nanos: 123_456_789 };

const HEADERS: [(&str, &str); 14] = [
    (":authority", "shop.example.com"),
    (":method", "GET"),
    (":path", "/catalogue/17?sort=price"),
    (":scheme", "https"),
    ("accept", "application/json"),
    ("accept-encoding", "gzip, br"),
    ("accept-language", "en-GB,en;q=0.7"),
    ("authorization", "Bearer eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"),
    ("cookie", "session=0f8fad5b-d9cb-469f-a165-70867728950e"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    ("x-envoy-internal", "true"),
    ("x-forwarded-for", "10.0.0.17"),
    ("x-forwarded-proto", "https"),
    ("x-request-id", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
];

fn peer(host: &str, port: u32, principal: &str) -> Peer {
    let address =
        SocketAddress { address: host.to_owned(), port_specifier: Some(PortSpecifier::PortValue(port)) };
    Peer {
        address: Some(Address { address: Some(address::Address::SocketAddress(address)) }),
        principal: principal.to_owned(),
        ..Peer::default()
    }
}

pub(super) fn check() -> CheckRequest {
    let text = |name: &str| {
        let found = HEADERS.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned()).unwrap_or_default()
    };
    let http = HttpRequest {
        id: "1234567890123456789".to_owned(),
        method: text(":method"),
        headers: HEADERS.map(|(name, value)| header_entry(name, value)).into(),
        path: text(":path"),
        host: text(":authority"),
        scheme: text(":scheme"),
        size: -1,
        ..HttpRequest::default()
    };
    let context = AttributeContext {
        source: Some(peer("10.0.0.17", 40_000, "spiffe://cluster.local/ns/web/sa/front")),
        destination: Some(peer("10.0.0.18", 8443, "spiffe://cluster.local/ns/shop/sa/catalogue")),
        request: Some(Request { time: Some(NOW), http: Some(http) }),
        ..AttributeContext::default()
    };
    CheckRequest { attributes: Some(context) }
}

pub(super) fn rate_limit() -> RateLimitRequest {
    let entry = |key: &str, value: &str| Entry { key: key.to_owned(), value: value.to_owned() };
    let descriptor = RateLimitDescriptor {
        entries: vec![entry("user", "alice"), entry("path", "/catalogue/17")],
        ..RateLimitDescriptor::default()
    };
    RateLimitRequest {
        domain: "requests".to_owned(),
        descriptors: vec![descriptor],
        ..RateLimitRequest::default()
    }
}

/// A message of an access log with a number of entries.
pub(super) fn log_message(entries: usize) -> StreamAccessLogsMessage {
    let entry = HttpAccessLogEntry {
        common_properties: Some(AccessLogCommon {
            start_time: Some(NOW),
            stream_id: "7c9e6679-7425-40de-944b-e07fc1f90ae7".to_owned(),
            ..AccessLogCommon::default()
        }),
        request: Some(HttpRequestProperties {
            request_method: 1,
            scheme: "https".to_owned(),
            authority: "shop.example.com".to_owned(),
            path: "/catalogue/17?sort=price".to_owned(),
            user_agent: "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0".to_owned(),
            request_id: "7c9e6679-7425-40de-944b-e07fc1f90ae7".to_owned(),
            ..HttpRequestProperties::default()
        }),
        response: Some(HttpResponseProperties {
            response_code: Some(200),
            response_body_bytes: 1234,
            ..HttpResponseProperties::default()
        }),
    };
    let entries = HttpAccessLogEntries { log_entry: vec![entry; entries] };
    StreamAccessLogsMessage { identifier: None, log_entries: Some(LogEntries::HttpLogs(entries)) }
}

/// A message in the frame of gRPC.
pub(super) fn frame(message: &impl Message) -> Bytes {
    let message = message.encode_to_vec();
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).expect("a small message"));
    frame.put_slice(&message);
    frame.freeze()
}
