//! Bad input for the services of Envoy: a clear answer, and nothing is lost without being counted.
#![allow(clippy::unwrap_used)]

mod support;

use futures_util::{StreamExt as _, stream};
use mixer_adapter::{
    prost,
    tonic::{
        Code, Request, Status,
        client::Grpc,
        codegen::http::uri::PathAndQuery,
        transport::{Channel, Endpoint},
    },
};
use mixer_adapter_envoy::proto::envoy::{
    config::core::v3::Node,
    data::accesslog::v3::HttpAccessLogEntry,
    service::{
        accesslog::v3::{
            StreamAccessLogsMessage, StreamAccessLogsResponse,
            stream_access_logs_message::{HttpAccessLogEntries, Identifier, LogEntries},
        },
        auth::v3::{
            AttributeContext, CheckRequest, CheckResponse,
            attribute_context::{HttpRequest, Request as HttpPart},
            authorization_client::AuthorizationClient,
        },
    },
};
use support::{Server, eventually};
use tonic_prost::ProstCodec;

struct Serving {
    server: Server,
    runtime: tokio::runtime::Runtime,
}

impl Serving {
    fn start() -> Self {
        let server = Server::start(&[]);
        server.until("/readyz", "\r\n\r\nready");
        Self { server, runtime: tokio::runtime::Runtime::new().unwrap() }
    }

    fn connect(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.server.grpc)).unwrap();
        self.runtime.block_on(endpoint.connect()).unwrap()
    }

    fn metric(&self, series: &str) -> Option<u64> {
        let page = self.server.get("/metrics");
        page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    fn is(&self, series: &str, value: u64) {
        eventually(&format!("{series} is {value}"), || (self.metric(series) == Some(value)).then_some(()));
    }

    fn check(&self, request: CheckRequest) -> Result<CheckResponse, Status> {
        let mut client = AuthorizationClient::new(self.connect());
        Ok(self.runtime.block_on(client.check(request))?.into_inner())
    }

    /// Sends messages of any kind as a stream of access logs, and then nothing more.
    fn log<M: prost::Message + 'static>(&self, channel: Channel, messages: Vec<M>) -> LogStream {
        let messages = stream::iter(messages).chain(stream::pending());
        LogStream(self.runtime.spawn(async move {
            let mut grpc = Grpc::new(channel);
            grpc.ready().await.unwrap();
            let codec = ProstCodec::<M, StreamAccessLogsResponse>::default();
            let path =
                PathAndQuery::from_static("/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs");
            grpc.client_streaming(Request::new(messages), path, codec).await.map(|_| ())
        }))
    }
}

/// A stream that ends when this is dropped, without its last message.
struct LogStream(tokio::task::JoinHandle<Result<(), Status>>);

impl Drop for LogStream {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A message with bytes where Envoy has texts and messages.
#[derive(Clone, PartialEq, prost::Message)]
struct Raw {
    #[prost(bytes = "vec", tag = "1")]
    first: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    second: Vec<u8>,
}

fn entries(count: usize) -> StreamAccessLogsMessage {
    let node = Some(Node { id: "front".to_owned(), ..Node::default() });
    let logs = HttpAccessLogEntries { log_entry: vec![HttpAccessLogEntry::default(); count] };
    StreamAccessLogsMessage {
        identifier: Some(Identifier { node, log_name: "log".to_owned() }),
        log_entries: Some(LogEntries::HttpLogs(logs)),
    }
}

#[test]
fn a_check_that_cannot_be_read_is_an_error_and_never_allowed() {
    let serving = Serving::start();
    let empty = serving.check(CheckRequest::default()).unwrap_err();
    assert_eq!((empty.code(), empty.message()), (Code::Unavailable, "the check has no attributes"));
    let headers = [("x-large".to_owned(), "a".repeat(8 << 20))].into();
    let http = Some(HttpRequest { headers, ..HttpRequest::default() });
    let request = Some(HttpPart { time: None, http });
    let attributes = Some(AttributeContext { request, ..AttributeContext::default() });
    let large = serving.check(CheckRequest { attributes }).unwrap_err();
    assert_eq!(large.code(), Code::ResourceExhausted, "{large}");
    // A text that is not UTF-8: the service of the source, field 2 of a peer in field 1 of the attributes in field 1.
    let peer = Raw { first: Vec::new(), second: vec![0xff] };
    let context = Raw { first: prost::Message::encode_to_vec(&peer), second: Vec::new() };
    let raw = Raw { first: prost::Message::encode_to_vec(&context), second: Vec::new() };
    let mut grpc = Grpc::new(serving.connect());
    let invalid = serving.runtime.block_on(async {
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static("/envoy.service.auth.v3.Authorization/Check");
        grpc.unary(Request::new(raw), path, ProstCodec::<Raw, CheckResponse>::default()).await.unwrap_err()
    });
    assert_eq!(invalid.code(), Code::InvalidArgument);
    assert!(invalid.message().contains("UTF-8"), "{invalid}");
}

#[test]
fn ten_thousand_streams_of_logs_at_once_are_read_and_end() {
    let serving = Serving::start();
    let channels: Vec<Channel> = (0..10).map(|_| serving.connect()).collect();
    let streams: Vec<LogStream> =
        (0..10_000).map(|number| serving.log(channels[number % 10].clone(), vec![entries(1)])).collect();
    serving.is("envoy_log_entries_total", 10_000);
    serving.is("envoy_log_streams", 10_000);
    drop(streams);
    serving.is("envoy_log_streams", 0);
    assert_eq!(serving.metric("envoy_log_unreadable_total"), Some(0), "the end of a connection is no fault");
}

#[test]
fn entries_beyond_the_limit_and_unreadable_messages_are_counted() {
    let serving = Serving::start();
    let channel = serving.connect();
    let large = serving.log(channel.clone(), vec![entries(500_000)]);
    serving.is("envoy_log_entries_total", 500_000);
    serving.is("envoy_log_lost_total{handler=\"\"}", 490_000);
    // An entry that is not one.
    let logs = Raw { first: vec![0xff, 0xff], second: Vec::new() };
    let raw = Raw { first: Vec::new(), second: prost::Message::encode_to_vec(&logs) };
    let bad_entry = serving.log(channel.clone(), vec![raw]);
    serving.is("envoy_log_lost_total{handler=\"\"}", 490_001);
    serving.is("envoy_log_streams", 2);
    // A message that is not one.
    let raw = Raw { first: Vec::new(), second: vec![0xff] };
    let _bad_message = serving.log(channel, vec![raw]);
    serving.is("envoy_log_unreadable_total", 1);
    serving.is("envoy_log_streams", 2);
    drop((large, bad_entry));
    serving.is("envoy_log_streams", 0);
}

#[test]
fn a_stream_that_is_half_open_keeps_its_entries() {
    let serving = Serving::start();
    let channel = serving.connect();
    let silent = serving.log(channel.clone(), Vec::<StreamAccessLogsMessage>::new());
    let half = serving.log(channel, vec![entries(3)]);
    serving.is("envoy_log_entries_total", 3);
    serving.is("envoy_tenant_log_entries_total{namespace=\"\"}", 3);
    drop((silent, half));
    serving.is("envoy_log_streams", 0);
}
