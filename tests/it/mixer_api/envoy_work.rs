//! The work for a message of Envoy is linear in its size.

use std::{collections::BTreeMap, sync::Arc};

use bytes::{BufMut as _, Bytes};
use mixer_adapter::{prost::Message, proto::Any};
use mixer_adapter_engine::dispatch::Caller;
use mixer_adapter_envoy::{
    AccessLogServer, Options, Services,
    proto::envoy::{
        config::core::v3::{HeaderMap, HeaderValue, Metadata},
        data::accesslog::v3::{
            AccessLogCommon, HttpAccessLogEntry, HttpRequestProperties, HttpResponseProperties,
            TcpAccessLogEntry, TlsProperties,
            tls_properties::{CertificateProperties, certificate_properties::SubjectAltName},
        },
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::{
            accesslog::v3::{
                StreamAccessLogsMessage,
                stream_access_logs_message::{HttpAccessLogEntries, LogEntries, TcpAccessLogEntries},
            },
            auth::v3::{
                AttributeContext, CheckRequest,
                attribute_context::{HttpRequest, Peer, Request},
            },
            ratelimit::v3::RateLimitRequest,
        },
    },
    proto::header_entry,
};
use tokio::runtime::Runtime;
use tonic::{body::Body, codegen::Service as _};

use super::{engine::mixer, linear::assert_linear};

/// The services, whose tasks run on the thread of a test, as allocations are counted for each thread.
struct Server {
    runtime: Runtime,
    services: Arc<Services>,
}

impl Server {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mixer = Arc::new(runtime.block_on(mixer()));
        let services = Arc::new(Services::new(mixer, Options::default(), runtime.handle()));
        Self { runtime, services }
    }

    fn checks(&self, name: &str, attributes: impl Fn(usize) -> AttributeContext) {
        assert_linear(name, |n| {
            let request = received(&CheckRequest { attributes: Some(attributes(n)) });
            drop(self.runtime.block_on(self.services.check(&request, &Caller::default())));
        });
    }

    fn requests(&self, name: &str, request: impl Fn(usize) -> HttpRequest) {
        self.checks(name, |n| AttributeContext {
            request: Some(Request { http: Some(request(n)), time: None }),
            ..AttributeContext::default()
        });
    }

    fn limits(&self, name: &str, descriptors: impl Fn(usize) -> Vec<RateLimitDescriptor>) {
        assert_linear(name, |n| {
            let request = RateLimitRequest {
                domain: "domain".to_owned(),
                descriptors: descriptors(n),
                ..RateLimitRequest::default()
            };
            let answer = self.services.should_rate_limit(received(&request), Caller::default());
            drop(self.runtime.block_on(answer));
        });
    }

    fn logs(&self, name: &str, entries: impl Fn(usize) -> Vec<HttpAccessLogEntry>) {
        assert_linear(name, |n| {
            let entries = HttpAccessLogEntries { log_entry: entries(n) };
            let log_entries = Some(LogEntries::HttpLogs(entries));
            self.runtime.block_on(self.log(&StreamAccessLogsMessage { identifier: None, log_entries }));
        });
    }

    fn tcp_logs(&self, name: &str, entries: impl Fn(usize) -> Vec<TcpAccessLogEntry>) {
        assert_linear(name, |n| {
            let entries = TcpAccessLogEntries { log_entry: entries(n) };
            let log_entries = Some(LogEntries::TcpLogs(entries));
            self.runtime.block_on(self.log(&StreamAccessLogsMessage { identifier: None, log_entries }));
        });
    }

    /// Sends a message on a stream of its own, and waits until its entries are reported.
    async fn log(&self, message: &StreamAccessLogsMessage) {
        let message = message.encode_to_vec();
        let mut body = Vec::with_capacity(5 + message.len());
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len()).unwrap());
        body.extend(message);
        let request = http::Request::post("/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs")
            .header("content-type", "application/grpc")
            .body(Body::new(http_body_util::Full::new(Bytes::from(body))))
            .unwrap();
        let Ok(response) = AccessLogServer::new(self.services.clone()).call(request).await;
        assert_eq!(
            response.headers().get("grpc-status").map(|status| status.as_bytes()),
            None,
            "{response:?}"
        );
        self.services.flush().await;
    }
}

/// Decodes what a peer sends.
fn received<M: Message + Default>(message: &M) -> M {
    M::decode(&message.encode_to_vec()[..]).unwrap()
}

/// A map from `n` names.
fn named<M: FromIterator<(String, V)>, V>(n: usize, value: impl Fn(usize) -> V) -> M {
    (0..n).map(|index| (format!("x-{index}"), value(index))).collect()
}

fn texts<M: FromIterator<(String, String)>>(n: usize) -> M {
    named(n, |index| index.to_string())
}

/// Metadata of a filter with `n` fields, or of `n` filters.
fn metadata(filters: usize, fields: usize) -> Metadata {
    let number = |index: usize| prost_types::Value {
        kind: Some(prost_types::value::Kind::NumberValue(f64::from(u32::try_from(index).unwrap()))),
    };
    Metadata { filter_metadata: named(filters, |_| prost_types::Struct { fields: named(fields, number) }) }
}

#[test]
fn maps_of_a_check() {
    let server = Server::start();
    server.requests("headers", |n| HttpRequest {
        headers: texts::<BTreeMap<String, String>>(n)
            .into_iter()
            .map(|(name, value)| header_entry(name, value))
            .collect(),
        ..HttpRequest::default()
    });
    server.requests("header map", |n| {
        let header = |index| HeaderValue { key: format!("x-{index}"), ..HeaderValue::default() };
        let headers = (0..n).map(header).collect();
        HttpRequest { header_map: Some(HeaderMap { headers }), ..HttpRequest::default() }
    });
    server.requests("values of one header", |n| {
        let header = HeaderValue { key: "x".to_owned(), value: "1".to_owned(), ..HeaderValue::default() };
        HttpRequest { header_map: Some(HeaderMap { headers: vec![header; n] }), ..HttpRequest::default() }
    });
    server.requests("cookies", |n| HttpRequest {
        headers: vec![header_entry("cookie", "a=b; ".repeat(n))],
        ..HttpRequest::default()
    });
    server.requests("query parameters", |n| HttpRequest {
        path: format!("/?{}", "a=b&".repeat(n)),
        ..HttpRequest::default()
    });
    server.checks("labels", |n| AttributeContext {
        source: Some(Peer { labels: texts(n), ..Peer::default() }),
        destination: Some(Peer { labels: texts(n), ..Peer::default() }),
        ..AttributeContext::default()
    });
    server.checks("context extensions", |n| AttributeContext {
        context_extensions: texts(n),
        ..AttributeContext::default()
    });
    server.checks("filters with metadata", |n| AttributeContext {
        metadata_context: Some(metadata(n, 1)),
        route_metadata_context: Some(metadata(n, 1)),
        ..AttributeContext::default()
    });
    server.checks("metadata of a filter", |n| AttributeContext {
        metadata_context: Some(metadata(1, n)),
        route_metadata_context: Some(metadata(1, n)),
        ..AttributeContext::default()
    });
}

#[test]
fn descriptors_of_a_rate_limit() {
    let server = Server::start();
    fn entry(index: usize) -> Entry {
        Entry { key: format!("key-{index}"), value: index.to_string() }
    }
    server.limits("descriptors", |n| {
        let of =
            |index| RateLimitDescriptor { entries: vec![entry(index)], ..RateLimitDescriptor::default() };
        (0..n).map(of).collect()
    });
    server.limits("entries", |n| {
        vec![RateLimitDescriptor { entries: (0..n).map(entry).collect(), ..RateLimitDescriptor::default() }]
    });
}

#[test]
fn entries_of_an_access_log() {
    let server = Server::start();
    server.logs("entries", |n| vec![HttpAccessLogEntry::default(); n]);
    server.tcp_logs("entries of TCP", |n| vec![TcpAccessLogEntry::default(); n]);
    let of = |name: &str, common: fn(usize) -> AccessLogCommon| {
        server.logs(name, |n| {
            vec![HttpAccessLogEntry { common_properties: Some(common(n)), ..HttpAccessLogEntry::default() }]
        });
        server.tcp_logs(&format!("{name} of TCP"), |n| {
            vec![TcpAccessLogEntry { common_properties: Some(common(n)), ..TcpAccessLogEntry::default() }]
        });
    };
    of("custom tags", |n| AccessLogCommon { custom_tags: texts(n), ..AccessLogCommon::default() });
    of("filter state", |n| AccessLogCommon {
        filter_state_objects: named(n, |_| Any::default()),
        ..AccessLogCommon::default()
    });
    of("metadata", |n| AccessLogCommon { metadata: Some(metadata(n, 1)), ..AccessLogCommon::default() });
    of("names of a certificate", |n| AccessLogCommon {
        tls_properties: Some(TlsProperties {
            peer_certificate_properties: Some(CertificateProperties {
                subject_alt_name: vec![SubjectAltName::default(); n],
                ..CertificateProperties::default()
            }),
            ..TlsProperties::default()
        }),
        ..AccessLogCommon::default()
    });
    server.logs("headers", |n| {
        vec![HttpAccessLogEntry {
            request: Some(HttpRequestProperties {
                request_headers: texts(n),
                ..HttpRequestProperties::default()
            }),
            response: Some(HttpResponseProperties {
                response_headers: texts(n),
                response_trailers: texts(n),
                ..HttpResponseProperties::default()
            }),
            ..HttpAccessLogEntry::default()
        }]
    });
}
