//! `envoy.service.accesslog.v3.AccessLogService`: receives streams of entries.
//!
//! Entries are decoded one by one and not with their message: 2 bytes of a message can be an entry, which takes hundreds of bytes of
//! memory.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
};

use bytes::Bytes;
use tonic::{
    Code, Response, Status, Streaming,
    body::Body,
    codegen::{BoxFuture, Service},
    server::{ClientStreamingService, Grpc, NamedService},
};
use tonic_prost::ProstCodec;

use crate::{
    Services,
    attributes::{LogSender, Node},
    counters::Counters,
    proto::{self, envoy::service::accesslog::v3::StreamAccessLogsResponse},
};

/// Maximum size of the identifier of a stream in bytes; Envoy 1.40 sends about 70 kB.
const MAX_IDENTIFIER: usize = 1 << 20;

/// `StreamAccessLogsMessage` with parts that are not decoded yet.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LogMessage {
    #[prost(bytes = "bytes", tag = "1")]
    identifier: Bytes,
    #[prost(message, optional, tag = "2")]
    http_logs: Option<LogEntries>,
    #[prost(message, optional, tag = "3")]
    tcp_logs: Option<LogEntries>,
}

/// The full name of the identifier.
const IDENTIFIER: &str = "envoy.service.accesslog.v3.StreamAccessLogsMessage.Identifier";

/// The node of the sender, from the identifier of a stream.
#[derive(Clone, PartialEq, prost::Message)]
struct Identifier {
    #[prost(message, optional, tag = "1")]
    node: Option<Node>,
}

/// Encoded entries. They are copies: a part of the message would hold the memory of all of it, with unknown fields, while it waits.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LogEntries {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(crate) entries: Vec<Vec<u8>>,
}

/// The entries of a message, by their kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogKind {
    Http,
    Tcp,
}

/// The service under the name of version 3; it answers to any name.
#[derive(Clone, Debug)]
pub struct AccessLogServer(Arc<Services>);

impl AccessLogServer {
    /// Serves the streams of access logs.
    pub fn new(services: Arc<Services>) -> Self {
        Self(services)
    }
}

impl NamedService for AccessLogServer {
    const NAME: &'static str = "envoy.service.accesslog.v3.AccessLogService";
}

impl Service<http::Request<Body>> for AccessLogServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let services = self.0.clone();
        Box::pin(async move {
            if !request.uri().path().ends_with("/StreamAccessLogs") {
                return Ok(Status::unimplemented("no such method").into_http());
            }
            let mut grpc = Grpc::new(ProstCodec::default());
            Ok(grpc.client_streaming(LogStreams(services), request).await)
        })
    }
}

struct LogStreams(Arc<Services>);

impl ClientStreamingService<LogMessage> for LogStreams {
    type Response = StreamAccessLogsResponse;
    type Future = BoxFuture<Response<StreamAccessLogsResponse>, Status>;

    fn call(&mut self, request: tonic::Request<Streaming<LogMessage>>) -> Self::Future {
        let services = self.0.clone();
        Box::pin(async move {
            let _open = OpenStream::new(services.counters.clone());
            let read = services.receive(request.into_inner()).await;
            if let Err(status) = &read
                && matches!(status.code(), Code::Internal | Code::OutOfRange | Code::ResourceExhausted)
            {
                services.counters.log_unreadable.fetch_add(1, Relaxed);
            }
            read.map(|()| Response::new(StreamAccessLogsResponse {}))
        })
    }
}

impl Services {
    /// Reads a stream until its end.
    ///
    /// # Errors
    /// A message cannot be read, or the connection has ended.
    async fn receive(&self, mut stream: Streaming<LogMessage>) -> Result<(), Status> {
        let mut sender = None;
        loop {
            let message = tokio::select! {
                // Messages that have arrived are read before the end.
                biased;
                message = stream.message() => message?,
                () = self.stopping.cancelled() => None,
            };
            let Some(message) = message else { return Ok(()) };
            // The first message has the node.
            let sender = sender.get_or_insert_with(|| {
                let node = (message.identifier.len() <= MAX_IDENTIFIER)
                    .then(|| proto::decode::<Identifier>(IDENTIFIER, message.identifier.clone()).ok()?.node)
                    .flatten();
                Arc::new(LogSender::new(node.as_ref(), self.connections.clone()))
            });
            let LogMessage { http_logs, tcp_logs, .. } = message;
            for (kind, logs) in [(LogKind::Http, http_logs), (LogKind::Tcp, tcp_logs)] {
                let Some(LogEntries { mut entries }) = logs else { continue };
                let received = entries.len();
                self.counters.log_entries.fetch_add(received as u64, Relaxed);
                entries.truncate(self.mixer.limits().requests_per_report);
                entries.shrink_to_fit();
                let used = entries.len();
                let is_queued = self.log_queue.add(sender.clone(), kind, entries);
                let lost = received - if is_queued { used } else { 0 };
                if lost > 0 {
                    self.counters.lose(&Arc::from(""), lost);
                }
            }
        }
    }
}

/// Counts a stream until it is dropped.
struct OpenStream(Arc<Counters>);

impl OpenStream {
    fn new(counters: Arc<Counters>) -> Self {
        counters.log_streams.fetch_add(1, Relaxed);
        Self(counters)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.log_streams.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::envoy::{
        config::core::v3,
        data::accesslog::v3::{HttpAccessLogEntry, TcpAccessLogEntry},
        service::accesslog::v3::{
            StreamAccessLogsMessage,
            stream_access_logs_message::{
                HttpAccessLogEntries, Identifier, LogEntries as Entries, TcpAccessLogEntries,
            },
        },
    };

    #[test]
    fn a_message_is_read_as_envoy_writes_it() {
        let extensions = vec![v3::Extension::default()];
        let node = Some(v3::Node { id: "front".to_owned(), extensions, ..v3::Node::default() });
        let identifier = Identifier { node, log_name: "log".to_owned() };
        let sender = super::Identifier::decode(&*identifier.encode_to_vec()).unwrap_or_default().node;
        assert_eq!(sender, Some(Node { id: "front".to_owned(), metadata: None }));
        let http = HttpAccessLogEntries { log_entry: vec![HttpAccessLogEntry::default(); 3] };
        let tcp = TcpAccessLogEntries { log_entry: vec![TcpAccessLogEntry::default(); 2] };
        for (entries, http, tcp) in [(Entries::HttpLogs(http), 3, 0), (Entries::TcpLogs(tcp), 0, 2)] {
            let message =
                StreamAccessLogsMessage { identifier: Some(identifier.clone()), log_entries: Some(entries) };
            let read = LogMessage::decode(&*message.encode_to_vec());
            let count = |logs: &Option<LogEntries>| logs.as_ref().map_or(0, |logs| logs.entries.len());
            let read = read.map(|read| (count(&read.http_logs), count(&read.tcp_logs), read.identifier));
            assert_eq!(read, Ok((http, tcp, identifier.encode_to_vec().into())));
        }
    }

    #[tokio::test]
    async fn a_stream_is_read_to_its_end_and_what_is_not_used_is_counted() {
        let mixer = Arc::new(mixer_adapter_engine::Mixer::default());
        let runtime = tokio::runtime::Handle::current();
        let services = Arc::new(Services::new(mixer, crate::Options::default(), &runtime));
        let frame = |message: &[u8]| {
            let length = u32::try_from(message.len()).unwrap_or_default().to_be_bytes();
            [&[0][..], &length, message].concat()
        };
        let logs = HttpAccessLogEntries { log_entry: vec![HttpAccessLogEntry::default(); 10_003] };
        let entries =
            StreamAccessLogsMessage { identifier: None, log_entries: Some(Entries::HttpLogs(logs)) };
        let body = [frame(&entries.encode_to_vec()), frame(&[0xff])].concat();
        let request = http::Request::post("/envoy.service.accesslog.v2.AccessLogService/StreamAccessLogs")
            .header("content-type", "application/grpc")
            .body(Body::new(http_body_util::Full::new(Bytes::from(body))));
        let Ok(request) = request else { panic!() };
        let Ok(response) = AccessLogServer::new(services.clone()).call(request).await;
        let Counters { log_entries, log_unreadable, log_streams, .. } = &*services.counters;
        let read = [log_entries, log_unreadable, log_streams].map(|count| count.load(Relaxed));
        assert_eq!((read, response.status().as_u16()), ([10_003, 1, 0], 200));
        services.flush().await;
        // Without a configuration all of them are lost.
        assert_eq!(services.counters.lost().values().sum::<u64>(), 10_003);
    }
}
