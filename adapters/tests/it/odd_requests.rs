//! Requests that no proxy should send, and some do: text that is not UTF-8, words twice, times and numbers out of range.

use std::{fs, marker::PhantomData};

use futures_util::stream;
use mixer_adapter::{
    prost::{Message, bytes::BufMut as _},
    prost_types::{Duration, Timestamp},
    template::{ListEntry, Template as _, listentry},
};
use mixer_adapter_core::proto::CheckResult;
use mixer_adapter_engine::proto::istio::mixer::v1::{
    CheckRequest, CheckResponse, CompressedAttributes, ReportRequest, ReportResponse,
};
use mixer_adapter_envoy::proto::envoy::{
    data::accesslog::v3::{HttpAccessLogEntry, HttpRequestProperties},
    service::{
        accesslog::v3::{
            StreamAccessLogsMessage, StreamAccessLogsResponse,
            stream_access_logs_message::{HttpAccessLogEntries, LogEntries},
        },
        auth::v3::{self as auth, AttributeContext, attribute_context},
    },
};
use tempfile::TempDir;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codec::{Codec, EncodeBuf, Encoder},
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use crate::support::{Server, eventually};

/// Sends messages with the byte 0xff in place of each `~`.
struct OtherBytes<Q, A>(PhantomData<(Q, A)>);

impl<Q, A> Default for OtherBytes<Q, A> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Q: Message + Send + Sync + 'static, A: Message + Default + Send + Sync + 'static> Codec
    for OtherBytes<Q, A>
{
    type Encode = Q;
    type Decode = A;
    type Encoder = Self;
    type Decoder = <ProstCodec<A, A> as Codec>::Decoder;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<A, A>::default().decoder()
    }
}

impl<Q: Message, A> Encoder for OtherBytes<Q, A> {
    type Item = Q;
    type Error = Status;

    fn encode(&mut self, message: Q, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        for byte in message.encode_to_vec() {
            buffer.put_u8(if byte == b'~' { 0xff } else { byte });
        }
        Ok(())
    }
}

const CONFIG: &str = r#"
kind: handler
metadata: {name: paths, namespace: istio-system}
spec: {compiledAdapter: listchecker, params: {overrides: ["/admin�"], blacklist: true}}
---
kind: instance
metadata: {name: path, namespace: istio-system}
spec: {compiledTemplate: listentry, params: {value: request.path}}
---
kind: rule
metadata: {name: paths, namespace: istio-system}
spec: {actions: [{handler: paths, instances: [path]}]}
---
kind: handler
metadata: {name: log, namespace: istio-system}
spec: {compiledAdapter: stdio, params: {logStream: FILE, outputPath: FOLDER/log, outputAsJson: true}}
---
kind: instance
metadata: {name: line, namespace: istio-system}
spec: {compiledTemplate: logentry, params: {severity: '"info"', timestamp: 'timestamp("2020-01-01T00:00:00Z")', variables: {path: request.path}}}
---
kind: rule
metadata: {name: log, namespace: istio-system}
spec: {actions: [{handler: log, instances: [line]}]}
"#;

struct Running {
    server: Server,
    folder: TempDir,
    grpc: Grpc<Channel>,
}

impl Running {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let config = folder.path().join("config");
        fs::create_dir(&config).unwrap();
        fs::write(config.join("config.yaml"), CONFIG.replace("FOLDER", path)).unwrap();
        let server = Server::start(&["--config", config.to_str().unwrap()]);
        server.until("/readyz", "\r\n\r\nready");
        let channel =
            Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap();
        Self { server, folder, grpc: Grpc::new(channel) }
    }

    async fn call<Q, A>(&mut self, path: &'static str, request: Q) -> A
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let codec = OtherBytes::<Q, A>::default();
        self.grpc.ready().await.unwrap();
        self.grpc.unary(Request::new(request), path.parse().unwrap(), codec).await.unwrap().into_inner()
    }

    /// The paths of as many lines in the log as are expected.
    fn logged(&self, count: usize) -> Vec<String> {
        eventually("the log has its lines", || {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            let paths: Vec<_> = lines.map(|line| line["path"].as_str().unwrap().to_owned()).collect();
            (paths.len() >= count).then_some(paths)
        })
    }
}

fn attributes(path: &str) -> CompressedAttributes {
    let words = vec!["request.path".to_owned(), path.to_owned()];
    CompressedAttributes { words, strings: [(-1, -2)].into(), ..CompressedAttributes::default() }
}

#[tokio::test]
async fn a_check_with_other_bytes_is_decided_by_its_rules() {
    let mut running = Running::start().await;
    for (path, expected) in [("/shop~", Code::Ok), ("/admin~", Code::PermissionDenied)] {
        let request = CheckRequest { attributes: Some(attributes(path)), ..CheckRequest::default() };
        let answer: CheckResponse = running.call("/istio.mixer.v1.Mixer/Check", request).await;
        let status = answer.precondition.unwrap().status.unwrap();
        assert_eq!(status.code, expected as i32, "{path}: {}", status.message);
    }
}

#[tokio::test]
async fn each_line_of_a_report_with_other_bytes_is_written() {
    let mut running = Running::start().await;
    let request = ReportRequest {
        attributes: vec![
            attributes("/a"),
            attributes("/b~"),
            CompressedAttributes { strings: [(-1, -2)].into(), ..CompressedAttributes::default() },
        ],
        default_words: vec!["request.path".to_owned(), "~/c".to_owned()],
        repeated_attributes_semantics: 1,
        ..ReportRequest::default()
    };
    let _: ReportResponse = running.call("/istio.mixer.v1.Mixer/Report", request).await;
    assert_eq!(running.logged(3), ["/a", "/b\u{fffd}", "\u{fffd}/c"]);
}

#[tokio::test]
async fn a_check_of_envoy_with_other_bytes_is_decided_by_its_rules() {
    let mut running = Running::start().await;
    for (path, expected) in [("/shop~", Code::Ok), ("/admin~", Code::PermissionDenied)] {
        let http = attribute_context::HttpRequest {
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: vec![mixer_adapter_envoy::proto::header_entry("user-agent", "~")],
            ..attribute_context::HttpRequest::default()
        };
        let context = AttributeContext {
            request: Some(attribute_context::Request { time: None, http: Some(http) }),
            ..AttributeContext::default()
        };
        let request = auth::CheckRequest { attributes: Some(context) };
        let answer: auth::CheckResponse =
            running.call("/envoy.service.auth.v3.Authorization/Check", request).await;
        assert_eq!(answer.status.unwrap().code, expected as i32, "{path}");
    }
}

#[tokio::test]
async fn entries_of_envoy_with_other_bytes_are_written() {
    let mut running = Running::start().await;
    let entry = |path: &str| HttpAccessLogEntry {
        request: Some(HttpRequestProperties { path: path.to_owned(), ..HttpRequestProperties::default() }),
        ..HttpAccessLogEntry::default()
    };
    let logs = HttpAccessLogEntries { log_entry: vec![entry("/a"), entry("/b~")] };
    let message = StreamAccessLogsMessage { identifier: None, log_entries: Some(LogEntries::HttpLogs(logs)) };
    let messages = Request::new(stream::iter([message]));
    let path = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs".parse().unwrap();
    let codec = OtherBytes::<StreamAccessLogsMessage, StreamAccessLogsResponse>::default();
    running.grpc.ready().await.unwrap();
    running.grpc.client_streaming(messages, path, codec).await.unwrap();
    assert_eq!(running.logged(2), ["/a", "/b\u{fffd}"]);
}

#[tokio::test]
async fn an_attribute_is_found_under_each_index_of_its_name() {
    let mut running = Running::start().await;
    for name in [-1, -3] {
        let words = ["request.path", "/admin\u{fffd}", "request.path"].map(str::to_owned).into();
        let attributes =
            CompressedAttributes { words, strings: [(name, -2)].into(), ..CompressedAttributes::default() };
        let request = CheckRequest { attributes: Some(attributes), ..CheckRequest::default() };
        let answer: CheckResponse = running.call("/istio.mixer.v1.Mixer/Check", request).await;
        let status = answer.precondition.unwrap().status.unwrap();
        assert_eq!(status.code, Code::PermissionDenied as i32, "{name}: {}", status.message);
    }
}

#[tokio::test]
async fn times_whose_nanoseconds_are_out_of_range_fail_no_check() {
    let mut running = Running::start().await;
    for nanos in [-1, 1_000_000_000, i32::MAX, i32::MIN] {
        for (path, expected) in [("/shop", Code::Ok), ("/admin~", Code::PermissionDenied)] {
            let mut attributes = attributes(path);
            attributes.words.extend(["request.time".to_owned(), "response.duration".to_owned()]);
            attributes.timestamps = [(-3, Timestamp { seconds: 1, nanos })].into();
            attributes.durations = [(-4, Duration { seconds: 1, nanos })].into();
            let request = CheckRequest { attributes: Some(attributes), ..CheckRequest::default() };
            let answer: CheckResponse = running.call("/istio.mixer.v1.Mixer/Check", request).await;
            let status = answer.precondition.unwrap().status.unwrap();
            assert_eq!(status.code, expected as i32, "{nanos} {path}: {}", status.message);
        }
    }
}

/// A real Mixer passes on the bytes that it received.
#[tokio::test]
async fn a_call_of_a_mixer_with_other_bytes_reaches_its_adapter() {
    let mut running = Running::start().await;
    let config = mixer_adapters::list::Params {
        overrides: vec!["/shop\u{fffd}".to_owned()],
        ..mixer_adapters::list::Params::default()
    };
    for (value, expected) in [("/shop~", Code::Ok), ("/admin~", Code::PermissionDenied)] {
        let instance = listentry::InstanceMsg {
            name: "path.instance.istio-system".to_owned(),
            value: Some(mixer_adapter::value::Value::String(value.to_owned())),
        };
        let request = listentry::HandleListEntryRequest {
            instance: Some(instance),
            adapter_config: Some(mixer_adapter::proto::Any {
                type_url: "type.googleapis.com/adapter.list.config.Params".to_owned(),
                value: config.encode_to_vec().into(),
            }),
            ..Default::default()
        };
        let answer: CheckResult = running.call(ListEntry::METHOD, request).await;
        assert_eq!(answer.status.unwrap_or_default().code, expected as i32, "{value}");
    }
    drop(running.server);
}
