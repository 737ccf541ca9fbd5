//! Streams may be silent for as long as their clients answer pings, and what they hold is limited.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use mixer_adapter::{
    prost::Message as _,
    service::{Server, ServerOptions, Workers},
    template::{ListEntry, Template as _},
    tonic::Code,
};
use mixer_adapter_engine::Mixer;
use mixer_adapter_envoy::{
    Options, Services,
    proto::envoy::{
        data::accesslog::v3::HttpAccessLogEntry,
        service::accesslog::v3::{
            StreamAccessLogsMessage,
            stream_access_logs_message::{HttpAccessLogEntries, LogEntries},
        },
    },
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use test_adapters::Probe;
use tokio::{net::TcpStream, runtime::Handle, sync::oneshot};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, ServerReflectionResponse, server_reflection_request::MessageRequest,
    server_reflection_response::MessageResponse,
};

use super::support::{Serving, framed, post};

const LOGS: &str = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// Limits of unary calls that the streams of these tests outlast.
const UNARY: Duration = Duration::from_millis(50);

async fn serving(keepalive_timeout: Duration) -> Serving {
    let options = ServerOptions::default()
        .handshake_timeout(UNARY)
        .body_timeout(UNARY)
        .write_timeout(UNARY)
        .call_timeout(Some(UNARY))
        .keepalive(Some(Duration::from_millis(20)))
        .keepalive_timeout(keepalive_timeout);
    with_options(options).await
}

async fn with_options(options: ServerOptions) -> Serving {
    let adapters = Adapters::builder(Handle::current()).add::<Probe>().build().unwrap();
    let host = Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(Handle::current())));
    let services = Services::new(Arc::new(Mixer::default()), Options::default(), &Handle::current());
    let server = Server::new(host.clone(), options).envoy(Arc::new(services));
    Serving::server(&Workers::here(), host, server).await
}

/// A stream on a connection of its own.
struct Stream {
    requests: SendStream<Bytes>,
    responses: h2::client::ResponseFuture,
    /// Ends the reading of the connection, which stays open, when it is dropped.
    reads: oneshot::Sender<()>,
}

impl Stream {
    async fn open(serving: &Serving, path: &str) -> Self {
        let socket = TcpStream::connect(serving.grpc).await.unwrap();
        let (client, mut connection) = h2::client::handshake(socket).await.unwrap();
        let (reads, stopped) = oneshot::channel();
        tokio::spawn(async move {
            tokio::select! {
                _ended = &mut connection => return,
                _dropped = stopped => {}
            }
            std::future::pending::<()>().await;
            drop(connection);
        });
        let mut client = client.ready().await.unwrap();
        let (responses, requests) = client.send_request(post(path), false).unwrap();
        Self { requests, responses, reads }
    }

    fn send(&mut self, message: &[u8]) {
        self.requests.send_data(framed(message), false).unwrap();
    }
}

fn entries(count: usize) -> Vec<u8> {
    let logs = HttpAccessLogEntries { log_entry: vec![HttpAccessLogEntry::default(); count] };
    StreamAccessLogsMessage { identifier: None, log_entries: Some(LogEntries::HttpLogs(logs)) }
        .encode_to_vec()
}

/// Waits until a series of the metrics has a value.
async fn until_metric(serving: &Serving, series: &str, value: f64) {
    let reached = async {
        while serving.metric(series).await != value {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reached).await.expect(series);
}

/// Returns when a unary call that began now has met its limit, twice.
async fn outlast_unary_calls(serving: &Serving) {
    for _ in 0..2 {
        let client = serving.connect().await;
        let failure = client.exchange_unfinished(post(ListEntry::METHOD), b"\0\0").await.unwrap_err();
        assert_eq!(failure.code, Code::DeadlineExceeded);
    }
}

#[tokio::test]
async fn a_silent_stream_outlasts_the_limits_of_unary_calls() {
    let serving = serving(Duration::from_secs(60)).await;
    let mut logs = Stream::open(&serving, LOGS).await;
    let mut reflection = Stream::open(&serving, REFLECTION).await;
    let mut never_used = Stream::open(&serving, LOGS).await;
    logs.send(&entries(1));
    until_metric(&serving, "mixer_adapter_envoy_log_entries_total", 1.0).await;
    outlast_unary_calls(&serving).await;

    logs.send(&entries(2));
    never_used.send(&entries(4));
    until_metric(&serving, "mixer_adapter_envoy_log_entries_total", 7.0).await;
    let message_request = Some(MessageRequest::ListServices(String::new()));
    reflection.send(&ServerReflectionRequest { message_request, ..Default::default() }.encode_to_vec());
    let mut body: RecvStream = reflection.responses.await.unwrap().into_body();
    let answer = body.data().await.unwrap().unwrap();
    let answer = ServerReflectionResponse::decode(answer.slice(5..)).unwrap();
    assert!(matches!(answer.message_response, Some(MessageResponse::ListServicesResponse(_))));
}

#[tokio::test]
async fn a_silent_stream_whose_client_answers_no_ping_is_ended() {
    let serving = serving(Duration::from_millis(20)).await;
    let mut logs = Stream::open(&serving, LOGS).await;
    logs.send(&entries(1));
    until_metric(&serving, "mixer_adapter_envoy_log_entries_total", 1.0).await;
    let Stream { reads, .. } = logs;
    drop(reads);
    until_metric(&serving, "mixer_adapter_envoy_log_streams", 0.0).await;
}

const MEMORY: usize = 1 << 20;
const STREAMS: usize = 128;
/// The longest message of reflection and health, and the part of it that arrives on each stream.
const ANNOUNCED: u32 = 16 << 10;
const PART: usize = 12_000;

/// A decoder holds it until the rest has arrived, also where a service reads requests in a task of its own, as reflection does.
#[tokio::test]
async fn what_has_arrived_of_messages_of_streams_counts_for_the_memory_limit() {
    for path in [LOGS, REFLECTION, "/grpc.health.v1.Health/Check"] {
        let serving = with_options(ServerOptions::default().max_call_bytes(MEMORY)).await;
        let mut honest = Stream::open(&serving, LOGS).await;
        let mut half_sent = Vec::new();
        for _ in 0..STREAMS {
            let mut stream = Stream::open(&serving, path).await;
            let part = [&[0][..], &ANNOUNCED.to_be_bytes(), &[0; PART]].concat();
            // The server may have ended the stream.
            let _ended = stream.requests.send_data(part.into(), false);
            half_sent.push(stream);
        }
        // All but those that fit in the memory give way, or are refused.
        let least = f64::from(u32::try_from(STREAMS - MEMORY / PART).unwrap());
        let hits = "mixer_adapter_limits_hit_total{limit=\"memory-limit\"}";
        let limited = async {
            while serving.metric(hits).await < least {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), limited).await.expect(path);
        honest.send(&entries(1));
        until_metric(&serving, "mixer_adapter_envoy_log_entries_total", 1.0).await;
    }
}
