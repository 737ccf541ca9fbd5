//! Bad input: a clear answer, and nothing is lost without being counted.

use futures_util::{StreamExt as _, stream};
use mixer_adapter::{
    prost::{
        self, DecodeError, Message,
        bytes::{Buf, BufMut},
        encoding::{DecodeContext, WireType},
    },
    tonic::{
        Code, Request, Status,
        client::Grpc,
        codegen::http::uri::PathAndQuery,
        transport::{Channel, Endpoint},
    },
};
use mixer_adapter_envoy::proto::envoy::{
    data::accesslog::v3::{AccessLogCommon, HttpAccessLogEntry, HttpResponseProperties},
    service::{
        accesslog::v3::{
            StreamAccessLogsMessage, StreamAccessLogsResponse,
            stream_access_logs_message::{HttpAccessLogEntries, LogEntries},
        },
        auth::v3::{
            AttributeContext, CheckRequest, CheckResponse,
            attribute_context::{HttpRequest, Request as HttpPart},
        },
    },
};
use tonic_prost::ProstCodec;

use super::{
    mesh::{PATHS, configured},
    support::{Server, eventually},
};

const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";
const RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const LOG: &str = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs";

/// Any bytes as a message.
#[derive(Clone, Debug, Default)]
struct Raw(Vec<u8>);

impl Message for Raw {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        _: u32,
        _: WireType,
        _: &mut impl Buf,
        _: DecodeContext,
    ) -> Result<(), DecodeError> {
        unreachable!("it is only sent")
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// A field with a message or a text.
fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    prost::encoding::bytes::encode(number, &content.to_vec(), &mut encoded);
    encoded
}

struct Serving {
    server: Server,
    runtime: tokio::runtime::Runtime,
    _config: tempfile::TempDir,
}

impl Serving {
    /// Starts a server that denies the path `/admin`.
    fn start() -> Self {
        let config = configured(PATHS);
        let server = Server::start(&["--config", config.path().to_str().unwrap()]);
        server.until("/readyz", "\r\n\r\nready");
        Self { server, runtime: tokio::runtime::Runtime::new().unwrap(), _config: config }
    }

    fn connect(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.server.grpc)).unwrap();
        self.runtime.block_on(endpoint.connect()).unwrap()
    }

    /// Waits until a metric has a value.
    fn until_counted(&self, series: &str, value: u64) {
        let line = format!("\n{series} {value}\n");
        eventually(&format!("{series} is {value}"), || {
            self.server.get("/metrics").contains(&line).then_some(())
        });
    }

    /// Calls a method, whose response is read as that of a check.
    fn call<M: Message + 'static>(&self, path: &'static str, message: M) -> Result<CheckResponse, Status> {
        let mut grpc = Grpc::new(self.connect()).max_encoding_message_size(usize::MAX);
        self.runtime.block_on(async {
            grpc.ready().await.unwrap();
            let codec = ProstCodec::<M, CheckResponse>::default();
            let response = grpc.unary(Request::new(message), PathAndQuery::from_static(path), codec).await?;
            Ok(response.into_inner())
        })
    }

    /// Sends messages as a stream of access logs, which stays open.
    fn log<M: Message + 'static>(&self, channel: Channel, messages: Vec<M>) -> LogStream {
        let messages = stream::iter(messages).chain(stream::pending());
        LogStream(self.runtime.spawn(async move {
            let mut grpc = Grpc::new(channel);
            grpc.ready().await.unwrap();
            let codec = ProstCodec::<M, StreamAccessLogsResponse>::default();
            grpc.client_streaming(Request::new(messages), PathAndQuery::from_static(LOG), codec)
                .await
                .map(drop)
        }))
    }
}

/// A stream that is reset when this is dropped.
struct LogStream(tokio::task::JoinHandle<Result<(), Status>>);

impl Drop for LogStream {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn check(http: HttpRequest) -> CheckRequest {
    let request = Some(HttpPart { time: None, http: Some(http) });
    CheckRequest { attributes: Some(AttributeContext { request, ..AttributeContext::default() }) }
}

fn entries(count: usize) -> StreamAccessLogsMessage {
    let logs = HttpAccessLogEntries { log_entry: vec![HttpAccessLogEntry::default(); count] };
    StreamAccessLogsMessage { identifier: None, log_entries: Some(LogEntries::HttpLogs(logs)) }
}

#[test]
fn a_message_that_cannot_be_read_is_an_error_and_never_a_decision() {
    let serving = Serving::start();
    let nested = (0..200).fold(Vec::new(), |inner, _| {
        // A struct with one field, whose value is the inner struct.
        let value = field(5, &inner);
        field(1, &[field(1, b"a"), field(2, &value)].concat())
    });
    // The metadata of a filter, in field 11 of the attributes.
    let metadata = field(1, &[field(1, b"filter"), field(2, &nested)].concat());
    for (bytes, text) in [
        (vec![0x08, 0x01], "wire type"),
        (vec![0x0a, 0x7f], "underflow"),
        (vec![0xff; 20], "varint"),
        (field(1, &field(11, &metadata)), "recursion"),
    ] {
        let error = serving.call(CHECK, Raw(bytes)).unwrap_err();
        assert!(error.code() == Code::InvalidArgument && error.message().contains(text), "{text}: {error}");
    }
    for bytes in [vec![0x08, 0x01], vec![0x0a, 0x7f], vec![0xff; 20]] {
        let error = serving.call(RATE_LIMIT, Raw(bytes)).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    }
    let empty = serving.call(CHECK, CheckRequest::default()).unwrap_err();
    assert_eq!((empty.code(), empty.message()), (Code::Unavailable, "the check has no attributes"));
}

#[test]
fn headers_are_read_up_to_the_limit_of_a_message_and_decided_by_the_rules_however_many() {
    let serving = Serving::start();
    let headers = vec![mixer_adapter_envoy::proto::header_entry("x-large", "a".repeat(8 << 20))];
    let large = serving.call(CHECK, check(HttpRequest { headers, ..HttpRequest::default() })).unwrap_err();
    assert_eq!(large.code(), Code::ResourceExhausted, "{large}");
    let headers = (0..100_000)
        .map(|number| mixer_adapter_envoy::proto::header_entry(format!("x-{number}"), "a"))
        .collect();
    let many = HttpRequest { headers, path: "/admin".to_owned(), ..HttpRequest::default() };
    let denied = serving.call(CHECK, check(many)).unwrap();
    assert_eq!(denied.status.unwrap().code, Code::PermissionDenied as i32);
}

#[test]
fn ten_thousand_streams_of_logs_at_once_are_read_and_end() {
    let serving = Serving::start();
    let channels: Vec<Channel> = (0..10).map(|_| serving.connect()).collect();
    let streams: Vec<LogStream> =
        (0..10_000).map(|number| serving.log(channels[number % 10].clone(), vec![entries(1)])).collect();
    serving.until_counted("mixer_adapter_envoy_log_entries_total", 10_000);
    serving.until_counted("mixer_adapter_envoy_log_streams", 10_000);
    drop(streams);
    serving.until_counted("mixer_adapter_envoy_log_streams", 0);
    // A connection may end at any time.
    serving.until_counted("mixer_adapter_envoy_log_unreadable_total", 0);
}

#[test]
fn entries_beyond_the_limit_and_unreadable_messages_are_counted() {
    let serving = Serving::start();
    let channel = serving.connect();
    let large = serving.log(channel.clone(), vec![entries(500_000)]);
    serving.until_counted("mixer_adapter_envoy_log_entries_total", 500_000);
    serving.until_counted("mixer_adapter_envoy_log_lost_total{handler=\"\"}", 490_000);
    let bad_entry = serving.log(channel.clone(), vec![Raw(field(2, &field(1, &[0xff, 0xff])))]);
    serving.until_counted("mixer_adapter_envoy_log_lost_total{handler=\"\"}", 490_001);
    serving.until_counted("mixer_adapter_envoy_log_streams", 2);
    let _bad_message = serving.log(channel, vec![Raw(vec![0x12, 0x7f])]);
    serving.until_counted("mixer_adapter_envoy_log_unreadable_total", 1);
    serving.until_counted("mixer_adapter_envoy_log_streams", 2);
    drop((large, bad_entry));
    serving.until_counted("mixer_adapter_envoy_log_streams", 0);
}

#[test]
fn a_handler_that_got_entries_closes_at_once() {
    let config = tempfile::tempdir().unwrap();
    let server = Server::start(&["--grace", "10m"]);
    let mut serving = Serving { server, runtime: tokio::runtime::Runtime::new().unwrap(), _config: config };
    let mut message = entries(1);
    let Some(LogEntries::HttpLogs(logs)) = &mut message.log_entries else { unreachable!() };
    logs.log_entry[0].common_properties =
        Some(AccessLogCommon { start_time: Some(Default::default()), ..AccessLogCommon::default() });
    logs.log_entry[0].response =
        Some(HttpResponseProperties { response_code: Some(200), ..HttpResponseProperties::default() });
    let stream = serving.log(serving.connect(), vec![message]);
    serving.until_counted(
        r#"mixer_adapter_handler_calls_total{handler="log.handler.istio-system",code="OK"}"#,
        1,
    );
    drop(stream);
    serving.server.signal("TERM");
    eventually("the server has ended", || serving.server.child.try_wait().unwrap());
}

#[test]
fn entries_of_a_stream_that_stays_open_are_reported() {
    let serving = Serving::start();
    let channel = serving.connect();
    let _silent = serving.log(channel.clone(), Vec::<StreamAccessLogsMessage>::new());
    let _half = serving.log(channel, vec![entries(3)]);
    serving.until_counted("mixer_adapter_envoy_tenant_log_entries_total{namespace=\"\"}", 3);
}
